"""A GPU, or a slice of one, as something to ask: what its answers and its silence mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmtop.collectors.nvml.errors import GPU_DOWN, UNKNOWN_ERROR, code_of, explain
from llmtop.model import Fact, Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[Any, Any], Any]
    """Takes the pynvml module and a device handle."""

NOT_SAID = Unknown("the driver gives no value")
SENTINELS = frozenset({2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1})
"""What drivers leave in an answer that they do not have: NVML_VALUE_NOT_AVAILABLE, and the largest signed numbers."""


class GpuDownError(Exception):
    """The GPU does not answer any more."""

    def __init__(self, why: Unknown) -> None:
        super().__init__(why.reason)
        self.why = why


class Device:
    """A handle of NVML.

    Attributes:
        error: The exception of the pynvml module: what `ask` raises when only this one call failed.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.error: type[Exception] = nvml.NVMLError

    def ask(self, call: Call, *, is_probe: bool = False) -> Any:
        """Call NVML.

        Args:
            call: What to ask.
            is_probe: Every GPU can answer this call, so that "Unknown Error" means that the GPU is down.

        Raises:
            GpuDownError: The answer means that nothing more can be had of the GPU.
            NVMLError: Only this call failed.
        """
        try:
            return call(self.nvml, self.handle)
        except self.error as error:
            code = code_of(error)
            if code in GPU_DOWN or (is_probe and code == UNKNOWN_ERROR):
                raise GpuDownError(explain(error)) from error
            raise

    def fact(self, call: Call) -> Fact:
        """A slow value, clean, or why there is none."""
        try:
            value = self.ask(call)
        except (self.error, UnicodeDecodeError) as error:
            return explain(error)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str | Unknown):
            return clean(value) if isinstance(value, str) else value
        return NOT_SAID if value in SENTINELS or value < 0 else int(value)
