from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BlockHeader(_message.Message):
    __slots__ = ("num_sources", "num_results", "session", "strings", "payload_size", "process", "num_range_results", "num_cmdlist_results", "num_graph_results")
    NUM_SOURCES_FIELD_NUMBER: _ClassVar[int]
    NUM_RESULTS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STRINGS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SIZE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    NUM_RANGE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    NUM_CMDLIST_RESULTS_FIELD_NUMBER: _ClassVar[int]
    NUM_GRAPH_RESULTS_FIELD_NUMBER: _ClassVar[int]
    num_sources: int
    num_results: int
    session: Session
    strings: StringTable
    payload_size: int
    process: Process
    num_range_results: int
    num_cmdlist_results: int
    num_graph_results: int
    def __init__(self, num_sources: _Optional[int] = ..., num_results: _Optional[int] = ..., session: _Optional[_Union[Session, _Mapping]] = ..., strings: _Optional[_Union[StringTable, _Mapping]] = ..., payload_size: _Optional[int] = ..., process: _Optional[_Union[Process, _Mapping]] = ..., num_range_results: _Optional[int] = ..., num_cmdlist_results: _Optional[int] = ..., num_graph_results: _Optional[int] = ...) -> None: ...

class StringTable(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, items: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Process(_message.Message):
    __slots__ = ("id", "host", "name")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    host: bytes
    name: bytes
    def __init__(self, id: _Optional[int] = ..., host: _Optional[bytes] = ..., name: _Optional[bytes] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("created_s", "host", "target", "devices", "versions", "command_line")
    CREATED_S_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_LINE_FIELD_NUMBER: _ClassVar[int]
    created_s: int
    host: System
    target: System
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    versions: _containers.RepeatedCompositeFieldContainer[Version]
    command_line: bytes
    def __init__(self, created_s: _Optional[int] = ..., host: _Optional[_Union[System, _Mapping]] = ..., target: _Optional[_Union[System, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., versions: _Optional[_Iterable[_Union[Version, _Mapping]]] = ..., command_line: _Optional[bytes] = ...) -> None: ...

class System(_message.Message):
    __slots__ = ("os", "os_version", "cpu", "architecture", "name")
    OS_FIELD_NUMBER: _ClassVar[int]
    OS_VERSION_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    os: bytes
    os_version: bytes
    cpu: bytes
    architecture: bytes
    name: bytes
    def __init__(self, os: _Optional[bytes] = ..., os_version: _Optional[bytes] = ..., cpu: _Optional[bytes] = ..., architecture: _Optional[bytes] = ..., name: _Optional[bytes] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("index", "name")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    index: int
    name: bytes
    def __init__(self, index: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ("what", "version")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    what: bytes
    version: bytes
    def __init__(self, what: _Optional[bytes] = ..., version: _Optional[bytes] = ...) -> None: ...

class Launch(_message.Message):
    __slots__ = ("thread_id", "mangled", "function", "demangled", "grid", "block", "metrics", "created_s", "sections", "rules", "nvtx", "context", "stream")
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    MANGLED_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    DEMANGLED_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CREATED_S_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    NVTX_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    thread_id: int
    mangled: bytes
    function: bytes
    demangled: bytes
    grid: Size
    block: Size
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    created_s: int
    sections: _containers.RepeatedCompositeFieldContainer[Section]
    rules: _containers.RepeatedCompositeFieldContainer[Rule]
    nvtx: Nvtx
    context: int
    stream: int
    def __init__(self, thread_id: _Optional[int] = ..., mangled: _Optional[bytes] = ..., function: _Optional[bytes] = ..., demangled: _Optional[bytes] = ..., grid: _Optional[_Union[Size, _Mapping]] = ..., block: _Optional[_Union[Size, _Mapping]] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., created_s: _Optional[int] = ..., sections: _Optional[_Iterable[_Union[Section, _Mapping]]] = ..., rules: _Optional[_Iterable[_Union[Rule, _Mapping]]] = ..., nvtx: _Optional[_Union[Nvtx, _Mapping]] = ..., context: _Optional[int] = ..., stream: _Optional[int] = ...) -> None: ...

class Size(_message.Message):
    __slots__ = ("x", "y", "z")
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    Z_FIELD_NUMBER: _ClassVar[int]
    x: int
    y: int
    z: int
    def __init__(self, x: _Optional[int] = ..., y: _Optional[int] = ..., z: _Optional[int] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "value", "instances")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    name: int
    value: Value
    instances: _containers.RepeatedCompositeFieldContainer[Instance]
    def __init__(self, name: _Optional[int] = ..., value: _Optional[_Union[Value, _Mapping]] = ..., instances: _Optional[_Iterable[_Union[Instance, _Mapping]]] = ...) -> None: ...

class Instance(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: Value
    value: Value
    def __init__(self, key: _Optional[_Union[Value, _Mapping]] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("text", "float32", "float64", "uint32", "uint64")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FLOAT32_FIELD_NUMBER: _ClassVar[int]
    FLOAT64_FIELD_NUMBER: _ClassVar[int]
    UINT32_FIELD_NUMBER: _ClassVar[int]
    UINT64_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    float32: float
    float64: float
    uint32: int
    uint64: int
    def __init__(self, text: _Optional[bytes] = ..., float32: _Optional[float] = ..., float64: _Optional[float] = ..., uint32: _Optional[int] = ..., uint64: _Optional[int] = ...) -> None: ...

class Scalars(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedCompositeFieldContainer[Scalar]
    def __init__(self, metrics: _Optional[_Iterable[_Union[Scalar, _Mapping]]] = ...) -> None: ...

class Scalar(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: int
    value: bytes
    def __init__(self, name: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class Instanced(_message.Message):
    __slots__ = ("metrics", "code")
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedCompositeFieldContainer[InstancedMetric]
    code: CodeReference
    def __init__(self, metrics: _Optional[_Iterable[_Union[InstancedMetric, _Mapping]]] = ..., code: _Optional[_Union[CodeReference, _Mapping]] = ...) -> None: ...

class InstancedMetric(_message.Message):
    __slots__ = ("name", "instances")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    name: int
    instances: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, name: _Optional[int] = ..., instances: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CodeReference(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class Loaded(_message.Message):
    __slots__ = ("functions",)
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    functions: _containers.RepeatedCompositeFieldContainer[LoadedFunction]
    def __init__(self, functions: _Optional[_Iterable[_Union[LoadedFunction, _Mapping]]] = ...) -> None: ...

class LoadedFunction(_message.Message):
    __slots__ = ("name", "address", "symbol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SYMBOL_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    address: int
    symbol: int
    def __init__(self, name: _Optional[bytes] = ..., address: _Optional[int] = ..., symbol: _Optional[int] = ...) -> None: ...

class Section(_message.Message):
    __slots__ = ("id", "title", "order", "header", "bodies")
    ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    title: bytes
    order: int
    header: SectionHeader
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, id: _Optional[bytes] = ..., title: _Optional[bytes] = ..., order: _Optional[int] = ..., header: _Optional[_Union[SectionHeader, _Mapping]] = ..., bodies: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SectionHeader(_message.Message):
    __slots__ = ("cells",)
    CELLS_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[SectionCell]
    def __init__(self, cells: _Optional[_Iterable[_Union[SectionCell, _Mapping]]] = ...) -> None: ...

class SectionCell(_message.Message):
    __slots__ = ("metric", "label", "split", "on", "options")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    metric: bytes
    label: bytes
    split: bool
    on: GpuFilter
    options: _containers.RepeatedCompositeFieldContainer[CellOption]
    def __init__(self, metric: _Optional[bytes] = ..., label: _Optional[bytes] = ..., split: bool = ..., on: _Optional[_Union[GpuFilter, _Mapping]] = ..., options: _Optional[_Iterable[_Union[CellOption, _Mapping]]] = ...) -> None: ...

class CellOption(_message.Message):
    __slots__ = ("metric",)
    METRIC_FIELD_NUMBER: _ClassVar[int]
    metric: bytes
    def __init__(self, metric: _Optional[bytes] = ...) -> None: ...

class GpuFilter(_message.Message):
    __slots__ = ("first", "last", "ranges")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    ranges: _containers.RepeatedCompositeFieldContainer[GpuRange]
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[GpuRange, _Mapping]]] = ...) -> None: ...

class GpuRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class SectionBody(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[BodyItem]
    def __init__(self, items: _Optional[_Iterable[_Union[BodyItem, _Mapping]]] = ...) -> None: ...

class BodyItem(_message.Message):
    __slots__ = ("table", "bars", "histogram", "line", "group", "roofline", "hotspots", "statistics", "shared_memory", "device_memory", "memory_chart", "first_level_cache", "second_level_cache", "nvlink_topology", "nvlink_properties", "nvlink_throughput", "eviction", "numa", "timeline", "on")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    BARS_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ROOFLINE_FIELD_NUMBER: _ClassVar[int]
    HOTSPOTS_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    SHARED_MEMORY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_CHART_FIELD_NUMBER: _ClassVar[int]
    FIRST_LEVEL_CACHE_FIELD_NUMBER: _ClassVar[int]
    SECOND_LEVEL_CACHE_FIELD_NUMBER: _ClassVar[int]
    NVLINK_TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    NVLINK_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    NVLINK_THROUGHPUT_FIELD_NUMBER: _ClassVar[int]
    EVICTION_FIELD_NUMBER: _ClassVar[int]
    NUMA_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    table: BodyTable
    bars: BarChart
    histogram: Histogram
    line: LineChart
    group: SectionBody
    roofline: Titled
    hotspots: Titled
    statistics: Statistics
    shared_memory: Titled
    device_memory: Titled
    memory_chart: Titled
    first_level_cache: Titled
    second_level_cache: Titled
    nvlink_topology: Titled
    nvlink_properties: Titled
    nvlink_throughput: Titled
    eviction: Titled
    numa: Titled
    timeline: Titled
    on: GpuFilter
    def __init__(self, table: _Optional[_Union[BodyTable, _Mapping]] = ..., bars: _Optional[_Union[BarChart, _Mapping]] = ..., histogram: _Optional[_Union[Histogram, _Mapping]] = ..., line: _Optional[_Union[LineChart, _Mapping]] = ..., group: _Optional[_Union[SectionBody, _Mapping]] = ..., roofline: _Optional[_Union[Titled, _Mapping]] = ..., hotspots: _Optional[_Union[Titled, _Mapping]] = ..., statistics: _Optional[_Union[Statistics, _Mapping]] = ..., shared_memory: _Optional[_Union[Titled, _Mapping]] = ..., device_memory: _Optional[_Union[Titled, _Mapping]] = ..., memory_chart: _Optional[_Union[Titled, _Mapping]] = ..., first_level_cache: _Optional[_Union[Titled, _Mapping]] = ..., second_level_cache: _Optional[_Union[Titled, _Mapping]] = ..., nvlink_topology: _Optional[_Union[Titled, _Mapping]] = ..., nvlink_properties: _Optional[_Union[Titled, _Mapping]] = ..., nvlink_throughput: _Optional[_Union[Titled, _Mapping]] = ..., eviction: _Optional[_Union[Titled, _Mapping]] = ..., numa: _Optional[_Union[Titled, _Mapping]] = ..., timeline: _Optional[_Union[Titled, _Mapping]] = ..., on: _Optional[_Union[GpuFilter, _Mapping]] = ...) -> None: ...

class Titled(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BodyTable(_message.Message):
    __slots__ = ("title", "cells")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    title: bytes
    cells: _containers.RepeatedCompositeFieldContainer[SectionCell]
    def __init__(self, title: _Optional[bytes] = ..., cells: _Optional[_Iterable[_Union[SectionCell, _Mapping]]] = ...) -> None: ...

class BarChart(_message.Message):
    __slots__ = ("title", "values", "cells")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    title: bytes
    values: ValueAxis
    cells: _containers.RepeatedCompositeFieldContainer[SectionCell]
    def __init__(self, title: _Optional[bytes] = ..., values: _Optional[_Union[ValueAxis, _Mapping]] = ..., cells: _Optional[_Iterable[_Union[SectionCell, _Mapping]]] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("title", "bins", "cell")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    BINS_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    title: bytes
    bins: HistogramAxis
    cell: SectionCell
    def __init__(self, title: _Optional[bytes] = ..., bins: _Optional[_Union[HistogramAxis, _Mapping]] = ..., cell: _Optional[_Union[SectionCell, _Mapping]] = ...) -> None: ...

class HistogramAxis(_message.Message):
    __slots__ = ("label", "count")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    label: bytes
    count: int
    def __init__(self, label: _Optional[bytes] = ..., count: _Optional[int] = ...) -> None: ...

class LineChart(_message.Message):
    __slots__ = ("title", "x", "y", "cells", "highlight")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    HIGHLIGHT_FIELD_NUMBER: _ClassVar[int]
    title: bytes
    x: ValueAxis
    y: ValueAxis
    cells: _containers.RepeatedCompositeFieldContainer[SectionCell]
    highlight: Cells
    def __init__(self, title: _Optional[bytes] = ..., x: _Optional[_Union[ValueAxis, _Mapping]] = ..., y: _Optional[_Union[ValueAxis, _Mapping]] = ..., cells: _Optional[_Iterable[_Union[SectionCell, _Mapping]]] = ..., highlight: _Optional[_Union[Cells, _Mapping]] = ...) -> None: ...

class Cells(_message.Message):
    __slots__ = ("cells",)
    CELLS_FIELD_NUMBER: _ClassVar[int]
    cells: _containers.RepeatedCompositeFieldContainer[SectionCell]
    def __init__(self, cells: _Optional[_Iterable[_Union[SectionCell, _Mapping]]] = ...) -> None: ...

class ValueAxis(_message.Message):
    __slots__ = ("label", "range")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    label: bytes
    range: AxisRange
    def __init__(self, label: _Optional[bytes] = ..., range: _Optional[_Union[AxisRange, _Mapping]] = ...) -> None: ...

class AxisRange(_message.Message):
    __slots__ = ("least", "most")
    LEAST_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    least: int
    most: int
    def __init__(self, least: _Optional[int] = ..., most: _Optional[int] = ...) -> None: ...

class Statistics(_message.Message):
    __slots__ = ("title", "rollups", "metrics")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    ROLLUPS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    title: bytes
    rollups: Cells
    metrics: Cells
    def __init__(self, title: _Optional[bytes] = ..., rollups: _Optional[_Union[Cells, _Mapping]] = ..., metrics: _Optional[_Union[Cells, _Mapping]] = ...) -> None: ...

class Rule(_message.Message):
    __slots__ = ("id", "name", "body", "section")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SECTION_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    name: bytes
    body: RuleBody
    section: bytes
    def __init__(self, id: _Optional[bytes] = ..., name: _Optional[bytes] = ..., body: _Optional[_Union[RuleBody, _Mapping]] = ..., section: _Optional[bytes] = ...) -> None: ...

class RuleBody(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RuleItem]
    def __init__(self, items: _Optional[_Iterable[_Union[RuleItem, _Mapping]]] = ...) -> None: ...

class RuleItem(_message.Message):
    __slots__ = ("message", "focus", "speedup")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FOCUS_FIELD_NUMBER: _ClassVar[int]
    SPEEDUP_FIELD_NUMBER: _ClassVar[int]
    message: RuleMessage
    focus: _containers.RepeatedCompositeFieldContainer[Focus]
    speedup: Speedup
    def __init__(self, message: _Optional[_Union[RuleMessage, _Mapping]] = ..., focus: _Optional[_Iterable[_Union[Focus, _Mapping]]] = ..., speedup: _Optional[_Union[Speedup, _Mapping]] = ...) -> None: ...

class RuleMessage(_message.Message):
    __slots__ = ("text", "type", "id", "title")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    type: int
    id: int
    title: bytes
    def __init__(self, text: _Optional[bytes] = ..., type: _Optional[int] = ..., id: _Optional[int] = ..., title: _Optional[bytes] = ...) -> None: ...

class Focus(_message.Message):
    __slots__ = ("message_id", "metric", "value")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    message_id: int
    metric: bytes
    value: float
    def __init__(self, message_id: _Optional[int] = ..., metric: _Optional[bytes] = ..., value: _Optional[float] = ...) -> None: ...

class Speedup(_message.Message):
    __slots__ = ("type", "percent")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    type: int
    percent: float
    def __init__(self, type: _Optional[int] = ..., percent: _Optional[float] = ...) -> None: ...

class Nvtx(_message.Message):
    __slots__ = ("domains", "threads", "started")
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    domains: _containers.RepeatedCompositeFieldContainer[NvtxDomain]
    threads: _containers.RepeatedCompositeFieldContainer[NvtxThread]
    started: _containers.RepeatedCompositeFieldContainer[NvtxStarted]
    def __init__(self, domains: _Optional[_Iterable[_Union[NvtxDomain, _Mapping]]] = ..., threads: _Optional[_Iterable[_Union[NvtxThread, _Mapping]]] = ..., started: _Optional[_Iterable[_Union[NvtxStarted, _Mapping]]] = ...) -> None: ...

class NvtxDomain(_message.Message):
    __slots__ = ("id", "name")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: bytes
    def __init__(self, id: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...

class NvtxThread(_message.Message):
    __slots__ = ("id", "stacks")
    ID_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    id: int
    stacks: _containers.RepeatedCompositeFieldContainer[NvtxStack]
    def __init__(self, id: _Optional[int] = ..., stacks: _Optional[_Iterable[_Union[NvtxStack, _Mapping]]] = ...) -> None: ...

class NvtxStack(_message.Message):
    __slots__ = ("domain", "ranges")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    domain: int
    ranges: _containers.RepeatedCompositeFieldContainer[NvtxRange]
    def __init__(self, domain: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[NvtxRange, _Mapping]]] = ...) -> None: ...

class NvtxRange(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    def __init__(self, name: _Optional[bytes] = ...) -> None: ...

class NvtxStarted(_message.Message):
    __slots__ = ("domain", "ranges")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    domain: int
    ranges: _containers.RepeatedCompositeFieldContainer[NvtxStartedRange]
    def __init__(self, domain: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[NvtxStartedRange, _Mapping]]] = ...) -> None: ...

class NvtxStartedRange(_message.Message):
    __slots__ = ("id", "name")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: bytes
    def __init__(self, id: _Optional[int] = ..., name: _Optional[bytes] = ...) -> None: ...
