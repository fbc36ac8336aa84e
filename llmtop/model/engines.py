"""What llmtop knows of one LLM server, as data: the type of each file in `llmtop.servers`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from llmtop.frozen import frozen
from llmtop.model.series import Metric
from llmtop.model.values import Unknown, Value


@frozen
class Role:
    r"""How one process of a server is told by its title or command line.

    Attributes:
        name: What the process does; back references (`\1`) take what the pattern caught: a worker's rank.
        pattern: Searched in the process's title, or in its command line as `procfs.command` writes it.
    """

    name: str
    pattern: str


@frozen
class ExposedNumber:
    """One way in which a server writes a number into its metrics.

    Attributes:
        name: The Prometheus name, with or without `_total`; of a distribution, the name without `_bucket`.
        where: Only samples whose labels match one of these (`fnmatch`): {"finished_reason": ("error", "abort")},
            {"status": ("4*",)}; a label that is not there counts as empty, as in PromQL.
        scale: What turns the server's unit into the metric's: 1e-3 for milliseconds.
        plus: Further names that are added where they are there: the server divides what the metric means.
        at_end: This counter moves when a request ends, by all that the request was: it tells nothing of a request
            that runs, and is never read as the metric itself but as that "of requests that ended"
            (`vocabulary.ENDED`). All other counters move as the work is done: with each step, or when a prompt is
            done.
        over: The number that this one is a part of, where the metric is a share: it is divided by that.
        from_zero: A sample appears with the first event: where the counter is declared, and none matches `where`, it
            is 0.
    """

    name: str
    where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scale: float = 1.0
    plus: tuple[str, ...] = ()
    at_end: bool = False
    over: ExposedNumber | None = None
    from_zero: bool = False


class Feature(StrEnum):
    """What a server can be told and what advice depends on: the keys of `Engine.knobs`.

    The first are on or off (or say of which kind they are); those from MAX_RUNNING on are numbers.
    """

    CUDA_GRAPHS = "cuda_graphs"
    TORCH_COMPILE = "torch_compile"
    ASYNC_SCHEDULING = "async_scheduling"
    PREFIX_CACHING = "prefix_caching"
    CHUNKED_PREFILL = "chunked_prefill"
    QUANTIZATION = "quantization"
    KV_CACHE_DTYPE = "kv_cache_dtype"
    SPECULATIVE_DECODING = "speculative_decoding"
    EXPERT_PARALLEL = "expert_parallel"
    SLEEP_WHEN_IDLE = "sleep_when_idle"
    KV_OFFLOADING = "kv_offloading"
    MAX_RUNNING = "max_running"
    """Requests that run at once, at most."""
    MAX_BATCHED_TOKENS = "max_batched_tokens"
    """Tokens of one step."""
    MAX_LENGTH = "max_length"
    """Tokens of one request, prompt and output."""
    GPU_MEMORY_SHARE = "gpu_memory_share"
    KV_BLOCKS = "kv_blocks"
    KV_BLOCK_SIZE = "kv_block_size"
    TENSOR_PARALLEL = "tensor_parallel"
    PIPELINE_PARALLEL = "pipeline_parallel"
    DATA_PARALLEL = "data_parallel"
    API_SERVERS = "api_servers"
    """Processes or threads that tokenise and answer."""
    CPU_THREADS = "cpu_threads"
    """Threads of the pools that compute on the CPU: OpenMP, BLAS, compilers."""


@frozen
class Default:
    """What a server does where it was told nothing.

    Attributes:
        since: The first version that does so; empty for all.
        unless: Where one of these is on, the server decides otherwise, and the default proves nothing.
    """

    value: Value | Unknown
    since: str = ""
    unless: tuple[Feature, ...] = ()


@frozen
class Knob:
    """How one server is told one thing, and how it says what it was told.

    Attributes:
        flags: Flags with a value, the usual one first. "--a.b" is found in "--a.b=1" and in the JSON of "--a" too.
        switches: Flags without a value, and what each means: {"--enforce-eager": "off"}; "-O=0" is one with that value.
        variables: Variables of the environment with a value as behind `flags`.
        labels: Labels of the engine's `info` metrics that tell it.
        words: What the engine's own words mean: {"none": "off"}; compared in small letters. "true", "false" and
            "none" mean on and off without being listed.
        defaults: The newest version's first.
        change: How people change it: "--max-num-seqs", "start without --enforce-eager"; empty where they cannot.
        undo: Said in place of `change` of what was told: what is free by default and better left so.
        since: The first version that has `change`.
        until: The first version that has it no more.
    """

    flags: tuple[str, ...] = ()
    switches: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    words: Mapping[str, Value] = field(default_factory=dict)
    defaults: tuple[Default, ...] = ()
    change: str = ""
    undo: str = ""
    since: str = ""
    until: str = ""


@frozen
class FormerDefault:
    """A variable with which versions before `until` do what `version` did by default."""

    variable: str
    value: str
    version: str
    until: str


KEPT_NAME = 15
"""Bytes that Linux keeps of a process's name (TASK_COMM_LEN)."""


@frozen
class Engine:
    """What llmtop knows of one LLM server, as data: one file in `llmtop.servers` each.

    Attributes:
        kind: The key: "vllm".
        title: The name that people use: "vLLM".
        roles: The first that matches wins; a process that matches none of any engine is not a server's front.
        library: A pattern in the names of mapped files, for processes whose title says nothing.
        port: Where it listens unless told otherwise; `port_flags` and `port_variable` tell it.
        model_flags: Flags naming the model, the most telling first; a positional one stands behind `model_after`.
        metrics_paths: Where its Prometheus text is; empty when it has none. Only paths that are safe to read.
        prefixes: What its metric names begin with, ":" written as "_".
        metrics_remedy: What turns its metrics on.
        names: Where each number is; the first sample that is there wins, so newer names stand first.
        distributions: Likewise for histograms.
        means: Latencies of which only a counter of the sum and one of the number are there, in this order.
        remarks: What a number leaves out, in a few words: "aborts not counted".
        slots_path: A JSON page of the requests that run, with the tokens of each so far (llama-server's /slots), and
            what turns it on.
        entry_counts: Counters by `model_labels` of what each model has done, of a server that runs models as steps of
            others; the first of the requests that it served, the last of their time. A request counts once.
        replicas: Labels over which a number is repeated, not divided: the ranks of one tensor-parallel group.
        model_labels: Labels whose value is the model's name.
        info: Names whose labels tell something of the server's set-up, with the labels worth showing.
        version_path: A JSON document with its version, under `version_key`.
        package: The Python package whose installed version is its own, where no page tells it.
        backs: A pattern of the roles that face no clients: whatever they listen on is not HTTP.
        socket_flags: Flags naming a Unix socket that it listens on instead of a port.
        alias_flags: Flags naming what clients call the model.
        knobs: What it can be told; a feature that is not there is one that it does not have.
        config_flags: Flags that name a file of further flags, as "key: value" lines.
        config_wins: Whether that file counts more than the command line.
        formers: Variables that bring back the defaults of an older version.
        titles: Titles of its processes longer than the name that Linux keeps of a process, by which a zombie is told.
        cores: By the role of its root, that of the process below it that runs the model and is always there.
        core_elsewhere: A pattern of command lines of a root with which that one, or a rank, is not below it: in
            the same process, or on another node; `core_elsewhere_with` are variables of its environment with which it
            is so, `core_since` the first version whose process has that role.
        answers_between_steps: Whether the loop that makes the steps answers for the metrics, at least in some versions,
            so that a long step keeps the page waiting (llama-server).
        preempts: Whether it may throw running requests out of its KV cache; those that give a request all its room
            before they start it never do.
    """

    kind: str
    title: str
    roles: tuple[Role, ...]
    port: int
    metrics_paths: tuple[str, ...] = ("/metrics",)
    prefixes: tuple[str, ...] = ()
    metrics_remedy: str = ""
    names: Mapping[Metric, tuple[ExposedNumber, ...]] = field(default_factory=dict)
    distributions: Mapping[Metric, tuple[ExposedNumber, ...]] = field(default_factory=dict)
    means: Mapping[Metric, tuple[ExposedNumber, ExposedNumber]] = field(default_factory=dict)
    remarks: Mapping[Metric, str] = field(default_factory=dict)
    slots_path: str = ""
    slots_remedy: str = ""
    entry_counts: tuple[str, ...] = ()
    port_flags: tuple[str, ...] = ("--port",)
    port_variable: str = ""
    model_flags: tuple[str, ...] = ("--model",)
    model_after: tuple[str, ...] = ()
    dtype_flags: tuple[str, ...] = ("--dtype",)
    library: str = ""
    replicas: tuple[str, ...] = ()
    model_labels: tuple[str, ...] = ("model_name",)
    info: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version_path: str = ""
    version_key: str = "version"
    package: str = ""
    backs: str = ""
    socket_flags: tuple[str, ...] = ("--uds", "--unix-socket")
    alias_flags: tuple[str, ...] = ()
    knobs: Mapping[Feature, Knob] = field(default_factory=dict)
    config_flags: tuple[str, ...] = ()
    config_wins: bool = False
    formers: tuple[FormerDefault, ...] = ()
    titles: tuple[str, ...] = ()
    cores: Mapping[str, str] = field(default_factory=dict)
    core_elsewhere: str = ""
    core_elsewhere_with: Mapping[str, str] = field(default_factory=dict)
    core_since: str = ""
    answers_between_steps: bool = False
    preempts: bool = True

    def role(self, command_line: str) -> str | None:
        """The role of a process with this title or command line; None when it is none of this server's."""
        for role in self.roles:
            match = re.search(role.pattern, command_line)
            if match:
                return match.expand(role.name)
        return None

    def role_by_name(self, name: str) -> str | None:
        """The role of a process that has only its short name left, as a zombie has; None when it is none of these."""
        whole = (title for title in self.titles if len(name) == KEPT_NAME and title.startswith(name))
        return self.role(next(whole, name))
