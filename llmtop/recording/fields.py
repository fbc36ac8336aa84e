"""What a recording has in each of its fields, and so what becomes of it in a shared copy.

The list is one of what is allowed: a field that is not in it is not in the copy. `tests/recording/test_fields.py` holds
it to the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from llmtop import vocabulary
from llmtop.facts import (
    SETTINGS_OF,
    EndedFact,
    EndpointFact,
    GpuFact,
    GpuInstanceFact,
    GpuProcessFact,
    HostFact,
    NeighbourFact,
    OriginFact,
    ProcessFact,
    ServerFact,
    TargetFact,
    ThreadFact,
)
from llmtop.model import Feature, Metric, TrackKind
from llmtop.vocabulary import remark_of


class Field(Enum):
    """What stands in a field."""

    NUMBER = auto()
    """Numbers, yes or no, and lists of these; never a text."""
    OWN = auto()
    """A word that llmtop chooses: a rule, a unit."""
    ID = auto()
    """The id of a track."""
    WHAT = auto()
    """What is missing: ids and names of metrics."""
    METRIC = auto()
    """The name of a metric with its labels."""
    PROSE = auto()
    """A sentence of llmtop's: its own words, numbers, and names that stay."""
    REMEDY = auto()
    """The same, often a command: what is left of a hidden path goes too."""
    SETTING = auto()
    """What a server is set to: a number, or words that llmtop knows."""
    VERSION = auto()
    DEVICE = auto()
    """What a GPU is called by its maker."""
    URL = auto()
    CODE = auto()
    """A function of a program, with its file."""
    NAME = auto()
    """What the server's own processes and threads are called."""
    PROGRAM = auto()
    """What another process is called."""
    MODEL = auto()
    HOST = auto()
    GPU_ID = auto()
    COMMAND = auto()
    LOG = auto()
    FOLDER = auto()
    TREE = auto()
    """An object, or several: each of its fields is of a kind of its own."""
    FACTS = auto()
    """An object whose fields are in `FACTS`."""
    CONFIG = auto()
    """What a model's own file says: `CONFIG_KEYS`."""
    TRACKS = auto()
    """Tracks by their ids."""


FIELDS: Final[Mapping[str, Field]] = {
    # About the recording, and where it is from.
    "llmtop": Field.VERSION,
    "host": Field.HOST,
    "utc_ns": Field.NUMBER,
    "trigger": Field.PROSE,
    "stopped": Field.PROSE,
    "origin": Field.TREE,
    "tool_version": Field.VERSION,
    "rank": Field.NUMBER,
    "ranks": Field.NUMBER,
    "range_term": Field.OWN,
    # The server.
    "pid": Field.NUMBER,
    "root_pid": Field.NUMBER,
    "title": Field.PROSE,
    "processes": Field.TREE,
    "role": Field.NAME,
    "ports": Field.NUMBER,
    "metrics_urls": Field.URL,
    "model": Field.MODEL,
    "dtype": Field.SETTING,
    "gpus": Field.NUMBER,
    "facts": Field.FACTS,
    "config": Field.CONFIG,
    # Tracks, series and stacks.
    "id": Field.ID,
    "kind": Field.OWN,
    "track": Field.ID,
    "parent": Field.ID,
    "metric": Field.METRIC,
    "unit": Field.OWN,
    "counter": Field.NUMBER,
    "source": Field.PROSE,
    "continues": Field.NUMBER,
    "frames": Field.NUMBER,
    "state": Field.OWN,
    # Events.
    "t_ns": Field.NUMBER,
    "said": Field.PROSE,
    "severity": Field.OWN,
    "subject": Field.PROSE,
    "about": Field.TREE,
    "how": Field.PROSE,
    "is_regular": Field.NUMBER,
    "old_pid": Field.NUMBER,
    "code": Field.OWN,
    "meaning": Field.PROSE,
    "file": Field.PROSE,
    "size": Field.NUMBER,
    "gpu": Field.DEVICE,
    "faults": Field.TREE,
    "exception": Field.PROSE,
    "sm": Field.NUMBER,
    "kernel": Field.CODE,
    "stood": Field.TREE,
    "warp": Field.NUMBER,
    "grid": Field.NUMBER,
    "block": Field.NUMBER,
    "block_index": Field.NUMBER,
    "thread_index": Field.NUMBER,
    "lanes": Field.NUMBER,
    "lane": Field.NUMBER,
    "pc": Field.NUMBER,
    "is_exact": Field.NUMBER,
    "function": Field.CODE,
    "offset": Field.NUMBER,
    "place": Field.CODE,
    "instruction": Field.CODE,
    "notes": Field.PROSE,
    "why_not": Field.TREE,
    # What is missing, and faults in the data.
    "missing": Field.TREE,
    "what": Field.WHAT,
    "why": Field.TREE,
    "reason": Field.PROSE,
    "remedy": Field.REMEDY,
    "general": Field.PROSE,
    "issues": Field.TREE,
    "message": Field.PROSE,
    "count": Field.NUMBER,
    # What was found.
    "verdict": Field.PROSE,
    "findings": Field.TREE,
    "rule": Field.OWN,
    "evidence": Field.PROSE,
    "action": Field.PROSE,
    "next_command": Field.REMEDY,
    "no_command": Field.PROSE,
    "share": Field.NUMBER,
    "at_stake_ns": Field.NUMBER,
    "parts": Field.PROSE,
    "idle": Field.TREE,
    "labels": Field.PROSE,
    "times": Field.TREE,
    "window_s": Field.NUMBER,
    # Blocks.
    "start_ns": Field.NUMBER,
    "end_ns": Field.NUMBER,
    "series": Field.NUMBER,
    "ended": Field.NUMBER,
    "gone": Field.ID,
    "tracks": Field.TRACKS,
    "sources": Field.TREE,
    # Their directories.
    "groups": Field.NUMBER,
    "samples": Field.NUMBER,
    "stacks": Field.NUMBER,
}
"""Fields by their names, which mean the same wherever they stand, but for `name` (see `name_of`). A GPU's core dump has
`registers` too, which hold what the program worked on."""
OF_SOURCES: Final[Mapping[str, Field]] = dict.fromkeys(
    ("name", "tracks", "families", "metrics", "parts", "whats", "lanes", "metric", "unit", "title", "kind"), Field.OWN
) | {"counter": Field.NUMBER, "high": Field.NUMBER}
"""What collectors say of themselves: all of it are llmtop's own words."""
_NAMES: Final[Mapping[str, Field]] = {
    TrackKind.HOST: Field.HOST,
    TrackKind.SELF: Field.OWN,
    TrackKind.GPU: Field.DEVICE,
    TrackKind.GPU_INSTANCE: Field.DEVICE,
    TrackKind.GPU_PROCESS: Field.PROGRAM,
    TrackKind.NEIGHBOUR: Field.PROGRAM,
    TrackKind.ENDPOINT: Field.WHAT,
}
FACTS: Final[Mapping[str, Field]] = {
    **dict.fromkeys(
        (
            GpuFact.MEMORY_TOTAL,
            GpuFact.SM_COUNT,
            GpuFact.INDEX,
            GpuFact.MINOR,
            GpuFact.BUS_WIDTH_BITS,
            GpuFact.MAX_SM_MHZ,
            GpuFact.MAX_MEMORY_MHZ,
            GpuFact.MAX_POWER_W,
            GpuFact.PCIE_MAX_GENERATION,
            GpuFact.PCIE_MAX_WIDTH,
            GpuFact.NVLINKS,
            GpuFact.NUMA_NODE,
            GpuFact.NUMA_DISTANCE,
            GpuInstanceFact.NUMBER,
            GpuInstanceFact.COMPUTE_INSTANCES,
            GpuProcessFact.PID,
            GpuProcessFact.CONTAINER_PID,
            ServerFact.PREEMPTS,
            ServerFact.ANSWERS_BETWEEN_STEPS,
            ServerFact.SCRAPE_MS,
            EndpointFact.OWN_S,
            EndpointFact.CLOSED_NS,
            EndedFact.ROOT,
            EndedFact.ENDED_NS,
            EndedFact.ALIVE_NS,
            EndedFact.IS_REGULAR,
            EndedFact.IS_KILLED,
            EndedFact.IS_OOM,
            EndedFact.IS_FAILURE,
            EndedFact.IS_ZOMBIE,
            EndedFact.PARENT,
            EndedFact.WAS_OVER,
            EndedFact.SENT_NS,
            ProcessFact.IS_PART,
            ProcessFact.GPUS_OPEN,
            ThreadFact.CPU,
            ThreadFact.CPUS_SINCE,
            HostFact.CORES,
            HostFact.IS_ROOT,
            TargetFact.WEIGHTS_BYTES,
            OriginFact.INTERVAL_S,
            OriginFact.MOMENT_S,
            OriginFact.RECORDED_S,
        ),
        Field.NUMBER,
    ),
    **dict.fromkeys(
        (
            GpuFact.NEAR_CPUS,
            GpuFact.GPM,
            GpuFact.MIG,
            GpuFact.ECC,
            GpuFact.ROW_REMAPPING,
            GpuFact.RECOVERY_ACTION,
            GpuProcessFact.KIND,
            ServerFact.ENGINE,
            ServerFact.NUM_GPU_BLOCKS,
            ServerFact.BLOCK_SIZE,
            SETTINGS_OF,
            EndedFact.SENDER,
            ProcessFact.CPU_QUOTA,
            ThreadFact.STATE,
            ThreadFact.CPUS,
            ThreadFact.CPUS_BEFORE,
            HostFact.TOOLS,
            TargetFact.QUANTIZATION,
            TargetFact.KV_CACHE_DTYPE,
            OriginFact.GPU_VENDOR,
        ),
        Field.SETTING,
    ),
    GpuFact.NAME: Field.DEVICE,
    GpuInstanceFact.PROFILE: Field.DEVICE,
    GpuFact.UUID: Field.GPU_ID,
    GpuFact.PCI_BUS_ID: Field.GPU_ID,
    GpuFact.DRIVER: Field.VERSION,
    GpuFact.COMPUTE_CAPABILITY: Field.VERSION,
    ServerFact.VERSION: Field.VERSION,
    ServerFact.URL: Field.URL,
    ServerFact.MODEL: Field.MODEL,
    TargetFact.MODEL_PATH: Field.MODEL,
    EndpointFact.SAID: Field.PROSE,
    EndedFact.HOW: Field.PROSE,
    EndedFact.WORDS: Field.LOG,
    EndedFact.LOG_ERROR: Field.LOG,
    EndedFact.LOG_END: Field.LOG,
    EndedFact.LOG_COMMAND: Field.LOG,
    ProcessFact.ROLE: Field.NAME,
    ProcessFact.CORE: Field.NAME,
    ProcessFact.COMMAND: Field.COMMAND,
    TargetFact.COMMAND: Field.COMMAND,
    ProcessFact.DIRECTORY: Field.FOLDER,
    ProcessFact.CGROUP: Field.FOLDER,
    ProcessFact.CGROUP_FOLDER: Field.FOLDER,
    NeighbourFact.CGROUP: Field.FOLDER,
    ThreadFact.WAIT_CHANNEL: Field.CODE,
    HostFact.PY_SPY: Field.REMEDY,
    OriginFact.TRIGGER: Field.PROSE,
}
"""Facts by their names."""
_OF_SETTINGS: Final = re.compile(
    rf"(?:told|setting)(?:\.(?:{'|'.join(Feature)}|unseen|former))?(?P<part>\.source|\.change)?\Z"
)
_REMARKS: Final = frozenset(remark_of(one) for one in vars(vocabulary).values() if isinstance(one, Metric))
QUOTING: Final = re.compile(
    r"((?:its log ends with|mend this and restart|names no error and ends with|\blog|\bwrote"
    r"|answers with (?:status )?\d+[^:]*): )(?!…).+",
    re.DOTALL,
)
"""A sentence that ends with a line of a log: that goes whatever it says."""


def name_of(document: Mapping[str, object]) -> Field:
    """What the field `name` of an object is: of a track by its kind; a frame has nothing but its number beside it."""
    kind = document.get("kind")
    if isinstance(kind, str):
        return _NAMES.get(kind, Field.NAME)
    return Field.CODE if document.keys() <= {"id", "name"} else Field.NAME


def fact(name: str) -> Field | None:
    """What a fact is; None for one that is not in a copy, such as a label of a server's own."""
    if (found := _OF_SETTINGS.match(name)) is not None:
        return Field.PROSE if found["part"] else Field.SETTING
    return Field.PROSE if name in _REMARKS else FACTS.get(name)
