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


class FieldKind(Enum):
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


FIELDS: Final[Mapping[str, FieldKind]] = {
    # About the recording, and where it is from.
    "llmtop": FieldKind.VERSION,
    "host": FieldKind.HOST,
    "utc_ns": FieldKind.NUMBER,
    "trigger": FieldKind.PROSE,
    "stopped": FieldKind.PROSE,
    "origin": FieldKind.TREE,
    "tool_version": FieldKind.VERSION,
    "rank": FieldKind.NUMBER,
    "ranks": FieldKind.NUMBER,
    "range_term": FieldKind.OWN,
    # The server.
    "pid": FieldKind.NUMBER,
    "root_pid": FieldKind.NUMBER,
    "title": FieldKind.PROSE,
    "processes": FieldKind.TREE,
    "role": FieldKind.NAME,
    "ports": FieldKind.NUMBER,
    "metrics_urls": FieldKind.URL,
    "model": FieldKind.MODEL,
    "dtype": FieldKind.SETTING,
    "gpus": FieldKind.NUMBER,
    "facts": FieldKind.FACTS,
    "config": FieldKind.CONFIG,
    # Tracks, series and stacks.
    "id": FieldKind.ID,
    "kind": FieldKind.OWN,
    "track": FieldKind.ID,
    "parent": FieldKind.ID,
    "metric": FieldKind.METRIC,
    "unit": FieldKind.OWN,
    "counter": FieldKind.NUMBER,
    "source": FieldKind.PROSE,
    "continues": FieldKind.NUMBER,
    "frames": FieldKind.NUMBER,
    "state": FieldKind.OWN,
    # Events.
    "t_ns": FieldKind.NUMBER,
    "said": FieldKind.PROSE,
    "severity": FieldKind.OWN,
    "subject": FieldKind.PROSE,
    "about": FieldKind.TREE,
    "how": FieldKind.PROSE,
    "is_regular": FieldKind.NUMBER,
    "old_pid": FieldKind.NUMBER,
    "code": FieldKind.OWN,
    "meaning": FieldKind.PROSE,
    "file": FieldKind.PROSE,
    "size": FieldKind.NUMBER,
    "gpu": FieldKind.DEVICE,
    "faults": FieldKind.TREE,
    "exception": FieldKind.PROSE,
    "sm": FieldKind.NUMBER,
    "kernel": FieldKind.CODE,
    "stood": FieldKind.TREE,
    "warp": FieldKind.NUMBER,
    "grid": FieldKind.NUMBER,
    "block": FieldKind.NUMBER,
    "block_index": FieldKind.NUMBER,
    "thread_index": FieldKind.NUMBER,
    "lanes": FieldKind.NUMBER,
    "lane": FieldKind.NUMBER,
    "pc": FieldKind.NUMBER,
    "is_exact": FieldKind.NUMBER,
    "function": FieldKind.CODE,
    "offset": FieldKind.NUMBER,
    "place": FieldKind.CODE,
    "instruction": FieldKind.CODE,
    "notes": FieldKind.PROSE,
    "why_not": FieldKind.TREE,
    # What is missing, and faults in the data.
    "missing": FieldKind.TREE,
    "what": FieldKind.WHAT,
    "why": FieldKind.TREE,
    "reason": FieldKind.PROSE,
    "remedy": FieldKind.REMEDY,
    "general": FieldKind.PROSE,
    "issues": FieldKind.TREE,
    "message": FieldKind.PROSE,
    "count": FieldKind.NUMBER,
    # What was found.
    "verdict": FieldKind.PROSE,
    "findings": FieldKind.TREE,
    "rule": FieldKind.OWN,
    "evidence": FieldKind.PROSE,
    "action": FieldKind.PROSE,
    "next_command": FieldKind.REMEDY,
    "no_command": FieldKind.PROSE,
    "share": FieldKind.NUMBER,
    "at_stake_ns": FieldKind.NUMBER,
    "parts": FieldKind.PROSE,
    "idle": FieldKind.TREE,
    "labels": FieldKind.PROSE,
    "times": FieldKind.TREE,
    "window_s": FieldKind.NUMBER,
    # Blocks.
    "start_ns": FieldKind.NUMBER,
    "end_ns": FieldKind.NUMBER,
    "series": FieldKind.NUMBER,
    "ended": FieldKind.NUMBER,
    "gone": FieldKind.ID,
    "tracks": FieldKind.TRACKS,
    "sources": FieldKind.TREE,
    # Their directories.
    "groups": FieldKind.NUMBER,
    "samples": FieldKind.NUMBER,
    "stacks": FieldKind.NUMBER,
}
"""Fields by their names, which mean the same wherever they stand, but for `name` (see `name_of`). A GPU's core dump has
`registers` too, which hold what the program worked on."""
OF_SOURCES: Final[Mapping[str, FieldKind]] = dict.fromkeys(
    ("name", "tracks", "families", "metrics", "parts", "whats", "lanes", "metric", "unit", "title", "kind"),
    FieldKind.OWN,
) | {"counter": FieldKind.NUMBER, "high": FieldKind.NUMBER}
"""What collectors say of themselves: all of it are llmtop's own words."""
_NAMES: Final[Mapping[str, FieldKind]] = {
    TrackKind.HOST: FieldKind.HOST,
    TrackKind.SELF: FieldKind.OWN,
    TrackKind.GPU: FieldKind.DEVICE,
    TrackKind.GPU_INSTANCE: FieldKind.DEVICE,
    TrackKind.GPU_PROCESS: FieldKind.PROGRAM,
    TrackKind.NEIGHBOUR: FieldKind.PROGRAM,
    TrackKind.ENDPOINT: FieldKind.WHAT,
}
FACTS: Final[Mapping[str, FieldKind]] = {
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
            EndpointFact.OVERDUE,
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
            ProcessFact.CPU_WEIGHT,
            ProcessFact.NICE,
            ThreadFact.CPU,
            ThreadFact.CPUS_SINCE,
            HostFact.CORES,
            HostFact.IS_ROOT,
            TargetFact.WEIGHTS_BYTES,
            OriginFact.INTERVAL_S,
            OriginFact.MOMENT_S,
            OriginFact.RECORDED_S,
        ),
        FieldKind.NUMBER,
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
            ServerFact.QUEUE_AT,
            ServerFact.NUM_GPU_BLOCKS,
            ServerFact.BLOCK_SIZE,
            SETTINGS_OF,
            EndedFact.SENDER,
            ProcessFact.CPU_QUOTA,
            ProcessFact.CORE_SINCE,
            ThreadFact.STATE,
            ThreadFact.CPUS,
            ThreadFact.CPUS_BEFORE,
            HostFact.TOOLS,
            TargetFact.QUANTIZATION,
            TargetFact.KV_CACHE_DTYPE,
            OriginFact.GPU_VENDOR,
            OriginFact.MODULE_LOADING,
            OriginFact.ALLOCATOR,
        ),
        FieldKind.SETTING,
    ),
    GpuFact.NAME: FieldKind.DEVICE,
    GpuInstanceFact.PROFILE: FieldKind.DEVICE,
    GpuFact.UUID: FieldKind.GPU_ID,
    GpuFact.PCI_BUS_ID: FieldKind.GPU_ID,
    GpuFact.DRIVER: FieldKind.VERSION,
    GpuFact.COMPUTE_CAPABILITY: FieldKind.VERSION,
    OriginFact.COMPUTE_CAPABILITY: FieldKind.VERSION,
    ServerFact.VERSION: FieldKind.VERSION,
    ServerFact.URL: FieldKind.URL,
    ServerFact.MODEL: FieldKind.MODEL,
    TargetFact.MODEL_PATH: FieldKind.MODEL,
    EndpointFact.SAID: FieldKind.PROSE,
    EndedFact.HOW: FieldKind.PROSE,
    EndedFact.WORDS: FieldKind.LOG,
    EndedFact.LOG_ERROR: FieldKind.LOG,
    EndedFact.LOG_END: FieldKind.LOG,
    EndedFact.LOG_COMMAND: FieldKind.LOG,
    ProcessFact.ROLE: FieldKind.NAME,
    ProcessFact.CORE: FieldKind.NAME,
    ProcessFact.COMMAND: FieldKind.COMMAND,
    TargetFact.COMMAND: FieldKind.COMMAND,
    ProcessFact.DIRECTORY: FieldKind.FOLDER,
    ProcessFact.CGROUP: FieldKind.FOLDER,
    ProcessFact.CGROUP_FOLDER: FieldKind.FOLDER,
    NeighbourFact.CGROUP: FieldKind.FOLDER,
    NeighbourFact.CGROUP_PATH: FieldKind.FOLDER,
    ProcessFact.CPU_WEIGHT_SET: FieldKind.FOLDER,
    ThreadFact.WAIT_CHANNEL: FieldKind.CODE,
    HostFact.PY_SPY: FieldKind.REMEDY,
    OriginFact.TRIGGER: FieldKind.PROSE,
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


def name_of(document: Mapping[str, object]) -> FieldKind:
    """What the field `name` of an object is: for a track by its kind; a frame has only its number next to it."""
    kind = document.get("kind")
    if isinstance(kind, str):
        return _NAMES.get(kind, FieldKind.NAME)
    return FieldKind.CODE if document.keys() <= {"id", "name"} else FieldKind.NAME


def fact(name: str) -> FieldKind | None:
    """What a fact is; None for one that is not in a copy, such as a label of a server's own."""
    if (found := _OF_SETTINGS.match(name)) is not None:
        return FieldKind.PROSE if found["part"] else FieldKind.SETTING
    return FieldKind.PROSE if name in _REMARKS else FACTS.get(name)
