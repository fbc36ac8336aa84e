"""Facts: what is slow or never to change about a track, about a target, or about where a trace comes from.

Their names are made here alone; they are what JSON, snapshots and recordings have, so none of them changes its looks.
What a report only shows (its CUDA version, say) its parser names; what a server is set to has names of its own
(`settings.keys_of`), and so have what its numbers leave out (`vocabulary.remark_of`) and the labels of its metrics.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class GpuFact:
    """Of a GPU, and the first ones of the MIG slices of it too."""

    NAME: Final = "name"
    UUID: Final = "uuid"
    MEMORY_TOTAL: Final = "memory_total"
    """Bytes."""
    SM_COUNT: Final = "sm_count"
    INDEX: Final = "index"
    """NVML's."""
    PCI_BUS_ID: Final = "pci_bus_id"
    MINOR: Final = "minor"
    """Of /dev/nvidia<minor>."""
    DRIVER: Final = "driver"
    BUS_WIDTH_BITS: Final = "bus_width_bits"
    COMPUTE_CAPABILITY: Final = "compute_capability"
    MAX_SM_MHZ: Final = "max_sm_mhz"
    MAX_MEMORY_MHZ: Final = "max_memory_mhz"
    MAX_POWER_W: Final = "max_power_w"
    """The highest power limit that can be set."""
    PCIE_MAX_GENERATION: Final = "pcie_max_generation"
    PCIE_MAX_WIDTH: Final = "pcie_max_width"
    GPM: Final = "gpm"
    """"supported", or Unknown."""
    MIG: Final = "mig"
    """"enabled" or "disabled", as the next but one."""
    NVLINKS: Final = "nvlinks"
    """How many it has, up or down."""
    NUMA_NODE: Final = "numa_node"
    """Whose it is; as the next two only on machines with CPUs of several nodes."""
    NEAR_CPUS: Final = "near_cpus"
    """Those near it: "0-31,64-95"."""
    NUMA_DISTANCE: Final = "numa_distance"
    """Of the farthest CPUs, where 10 is near (ACPI, SLIT)."""
    ECC: Final = "ecc"
    ROW_REMAPPING: Final = "row_remapping"
    """"failed", "pending" or "none"."""
    RECOVERY_ACTION: Final = "recovery_action"
    """In words; "none" where nothing needs to be done."""


class GpuInstanceFact:
    """Of a MIG slice, beside those of a GPU."""

    NUMBER: Final = "gpu_instance"
    COMPUTE_INSTANCES: Final = "compute_instances"
    """How many."""
    PROFILE: Final = "profile"
    """"1g.10gb"."""


class GpuProcessFact:
    """Of a process on a GPU."""

    PID: Final = "pid"
    KIND: Final = "kind"
    """"compute", "graphics", or both."""
    INSTANCES: Final = "mig"
    """The numbers of the slices that it is in."""
    CONTAINER_PID: Final = "container_pid"
    """Its PID in its own namespace, where that is another one; Unknown where nothing tells which process it is."""


class ServerFact:
    """Of a server as it tells of itself, on tracks "server:<port>"."""

    ENGINE: Final = "engine"
    """As people call it."""
    PREEMPTS: Final = "preempts"
    """1 where it throws running requests out when its KV cache is full, else 0."""
    ANSWERS_BETWEEN_STEPS: Final = "answers_between_steps"
    """1 where the loop that makes the steps may be what answers for the metrics, else it is not there."""
    URL: Final = "url"
    MODEL: Final = "model"
    VERSION: Final = "version"
    QUEUE_AT: Final = "queue_at"
    """The model before which most requests wait, of a server that runs several."""
    SCRAPE_MS: Final = "scrape_ms"
    """How long the last page took."""
    NUM_GPU_BLOCKS: Final = "num_gpu_blocks"
    """A label of its metrics, as the next one: blocks of the KV cache."""
    BLOCK_SIZE: Final = "block_size"
    """Tokens of a block."""


SETTINGS_OF: Final = "engine_kind"
"""Of a track that has the facts of `settings.facts`: the engine's key."""


class EndpointFact:
    """Facts of an endpoint, on tracks "endpoint:<port>": where the server's metrics are asked for."""

    URL: Final = "url"
    SAID: Final = "said"
    """While it fails, an Unknown: what came instead, and the remedy."""
    OWN_S: Final = "own_s"
    """Of a slow one: what a page takes longer than a request for next to nothing."""
    CLOSED_NS: Final = "closed_ns"
    """When the server closed the connection that was kept, of one that refuses since."""
    OVERDUE: Final = "overdue"
    """1 where it has never answered, the server listens nowhere else, and neither is young nor loads any more."""


class EndedFact:
    """Facts of a part of the server that has ended, on tracks "ended:<pid>/<start>"."""

    PID: Final = "pid"
    ROLE: Final = "role"
    ROOT: Final = "root"
    """The PID of the server's root."""
    ENDED_NS: Final = "ended_ns"
    ALIVE_NS: Final = "alive_ns"
    """When it was last seen alive."""
    HOW: Final = "how"
    """In words, or Unknown."""
    IS_REGULAR: Final = "is_regular"
    """1 where it holds, as in the next ones."""
    IS_KILLED: Final = "is_killed"
    IS_OOM: Final = "is_oom"
    IS_FAILURE: Final = "is_failure"
    IS_ZOMBIE: Final = "is_zombie"
    PARENT: Final = "parent"
    """The PID of a zombie's parent."""
    WAS_OVER: Final = "was_over"
    """1: it had ended before the first look, and `ENDED_NS` is that look's."""
    WORDS: Final = "words"
    """The kernel's."""
    LOG_ERROR: Final = "log_error"
    """The error that its log ends with, where there is one."""
    LOG_END: Final = "log_end"
    """The last line of a root's log that names no error; empty where it wrote nothing, absent where it is not read, and
    unknown where nobody can, of any part."""
    LOG_COMMAND: Final = "log_command"
    """What shows the end of its log."""
    SENDER: Final = "sender"
    """Where it is known: who sent the signal that it ended by or after, a `SignalSender`."""
    SENT_NS: Final = "sent_ns"


class SignalSender(StrEnum):
    """Where a signal came from."""

    OWN = "own"
    """A process of the server."""
    OUTSIDE = "outside"
    KERNEL = "kernel"


class ProcessFact:
    """Of a process of the server."""

    ROLE: Final = "role"
    COMMAND: Final = "cmdline"
    """Without its secrets."""
    IS_PART: Final = "part"
    """1 of those that make up the server, 0 of their helpers."""
    ROOT: Final = "root"
    """The PID of the server's root."""
    GPUS_OPEN: Final = "gpus_open"
    """Of the root, as the next two: how many GPUs its processes hold open."""
    DIRECTORY: Final = "directory"
    CORE: Final = "core"
    """The role of a process without which there is no server, where that is expected below it."""
    CORE_SINCE: Final = "core_since"
    """The first version of the server that has one."""
    CGROUP: Final = "cgroup"
    CGROUP_FOLDER: Final = "cgroup_folder"
    CPU_QUOTA: Final = "cpu_quota"
    """"2.5 cores", or "none"."""
    CPU_WEIGHT: Final = "cpu_weight"
    """Of a group that counts for less than half of others: its share of the usual weight, 0 to 0.5."""
    CPU_WEIGHT_SET: Final = "cpu_weight_set"
    """What sets it: "cpu.shares 2 in /sys/fs/cgroup/cpu/kubepods"."""
    NICE: Final = "nice"
    """Of its first thread, where it is above 0."""


class ThreadFact:
    """Of a thread of the server."""

    ROLE: Final = "role"
    STATE: Final = "state"
    """A `vocabulary.ThreadCause`, or "sleeping" where what in is not known."""
    WAIT_CHANNEL: Final = "wchan"
    """The function of the kernel that it sleeps in."""
    CPU: Final = "cpu"
    """The processor that it ran on last."""
    CPUS: Final = "cpus"
    """Those that it may run on: "0-3,8"."""
    CPUS_BEFORE: Final = "cpus_before"
    """Those that it might run on before, where that has changed."""
    CPUS_SINCE: Final = "cpus_since_ns"
    """When that was seen, on the trace's clock."""


class NeighbourFact:
    """Of a process outside the server."""

    PID: Final = "pid"
    CGROUP: Final = "cgroup"
    """Its cgroup's name."""
    CGROUP_PATH: Final = "cgroup_path"


class HostFact:
    """Of the machine."""

    CORES: Final = "cores"
    IS_ROOT: Final = "is_root"
    """1 where llmtop runs as root, else 0."""
    TOOLS: Final = "tools"
    """Those found, by name, with spaces between."""
    PY_SPY: Final = "py_spy"
    """How it is typed; empty where there is none."""


class TargetFact:
    """Of what llmtop is attached to, as its command line, its files and its environment say."""

    COMMAND: Final = "command"
    """Without its secrets."""
    VERSION: Final = "version"
    """As it is installed."""
    QUANTIZATION: Final = "quantization"
    KV_CACHE_DTYPE: Final = "kv_cache_dtype"
    WEIGHTS_BYTES: Final = "weights_bytes"
    """The size of the files of the model."""
    MODEL_PATH: Final = "model_path"


class OriginFact:
    """Of a trace's origin, of those that conclusions are drawn from."""

    INTERVAL_S: Final = "interval_s"
    """Live: how often most sources are read."""
    COMMAND: Final = "command"
    """The profiler's, without its secrets; of Nsight Compute with the program's behind it."""
    DIRECTORY: Final = "directory"
    """The program's."""
    TRIGGER: Final = "trigger"
    """Of a recording that nobody began: the condition that held."""
    MOMENT_S: Final = "moment_s"
    """Of a moment of a recording that is not all of it: seconds from its first moment to this one."""
    RECORDED_S: Final = "recorded_s"
    """With that: seconds from its first moment to its last one."""
    COMPUTE_CAPABILITY: Final = "compute capability"
    """Of GPUs that have no track with `GpuFact.COMPUTE_CAPABILITY`: "8.6", or several with commas."""
    MODULE_LOADING: Final = "CUDA_MODULE_LOADING"
    ALLOCATOR: Final = "PYTORCH_CUDA_ALLOC_CONF"
    """Variables of the program's environment, as a capture has them."""
    GPU_VENDOR: Final = "GPU vendor"
    """Said of a capture whose GPUs are not of NVIDIA: other tools look into them."""


AMD: Final = "AMD"
"""What `OriginFact.GPU_VENDOR` says."""

CONFIG_TEXTS: Final = frozenset({"model_type", "dtype", "torch_dtype"})
CONFIG_NUMBERS: Final = frozenset(
    (
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"),
        *("intermediate_size", "ffn_dim", "n_inner", "tie_word_embeddings", "kv_lora_rank", "q_lora_rank"),
        *("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "num_local_experts", "num_experts", "n_routed_experts"),
        *("num_experts_per_tok", "experts_per_token", "moe_intermediate_size", "shared_expert_intermediate_size"),
        *("first_k_dense_replace", "n_shared_experts"),
        *(f"quantization_config.{name}" for name in ("bits", "group_size", "zero_point", "sym")),
    )
)
"""Of a model's config.json what the arithmetic of `llmtop.analysis.roofline.model_facts` uses, and nothing else."""
