"""A little of the CUDA driver through ctypes: enough to run a kernel given as PTX, without nvcc, torch or cupy."""

from __future__ import annotations

import ctypes
import sys
import time

HEADER = ".version 7.0\n.target sm_70\n.address_size 64\n"
FAULT = (
    HEADER
    + """
.visible .entry fault(.param .u64 buffer)
{
    .reg .b64 %address;
    .reg .b32 %value;
    ld.param.u64 %address, [buffer];
    cvta.to.global.u64 %address, %address;
    add.u64 %address, %address, 1;
    mov.u32 %value, 7;
    st.global.u32 [%address], %value;
    ret;
}
"""
)
"""Stores four bytes at an odd address: the driver reports XID 13, and the context is dead."""
SMALL = (
    HEADER
    + """
.visible .entry small(.param .u64 buffer)
{
    .reg .b64 %address;
    .reg .b32 %value;
    ld.param.u64 %address, [buffer];
    cvta.to.global.u64 %address, %address;
    ld.global.u32 %value, [%address];
    add.u32 %value, %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
"""
)
"""Next to no work: something to profile that adds nothing to what the GPU's counters show."""
STAMP = (
    HEADER
    + """
.visible .entry stamp(.param .u64 buffer)
{
    .reg .b64 %address, %offset, %cycles, %until, %now;
    .reg .b32 %sm;
    .reg .pred %early;
    ld.param.u64 %address, [buffer];
    cvta.to.global.u64 %address, %address;
    mov.u32 %sm, %smid;
    mul.wide.u32 %offset, %sm, 16;
    add.u64 %address, %address, %offset;
    mov.u64 %now, %globaltimer;
    mov.u64 %cycles, %clock64;
    st.global.v2.u64 [%address], {%cycles, %now};
    add.u64 %until, %cycles, 20000;
wait:
    mov.u64 %cycles, %clock64;
    setp.lt.u64 %early, %cycles, %until;
    @%early bra wait;
    ret;
}
"""
)
"""Notes each SM's cycle counter and the GPU's clock (ns), 16 bytes for each SM. Blocks wait long enough (20,000 cycles)
that a grid of as many as fit reaches every SM."""

SPIN = (
    HEADER
    + """
.visible .entry spin(.param .u64 ns)
{
    .reg .b64 %length, %until, %now;
    .reg .pred %early;
    ld.param.u64 %length, [ns];
    mov.u64 %now, %globaltimer;
    add.u64 %until, %now, %length;
wait:
    mov.u64 %now, %globaltimer;
    setp.lt.u64 %early, %now, %until;
    @%early bra wait;
    ret;
}
"""
)
"""Keeps an SM for as many ns as it is given in place of a buffer."""


class CudaError(Exception):
    """A driver call failed, or there is no driver; `code` is CUDA's, -1 without one."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: CUDA error {code}" if code >= 0 else call)
        self.code = code


class Kernel:
    """One kernel of a PTX text in a context on the first GPU, with a buffer of 4 KiB as its argument.

    Raises:
        CudaError: There is no driver or no GPU, or it refuses the text.
    """

    def __init__(self, ptx: str, name: str) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise CudaError("libcuda.so.1 not found: there is no NVIDIA driver here", -1) from None
        device, context = ctypes.c_int(), ctypes.c_void_p()
        module, self._buffer = ctypes.c_void_p(), ctypes.c_uint64()
        self._function = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuModuleLoadData", ctypes.byref(module), ptx.encode())
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())
        self._call("cuMemAlloc_v2", ctypes.byref(self._buffer), ctypes.c_size_t(4096))

    def run(self) -> None:
        """Run it in one thread and wait.

        Raises:
            CudaError: It went wrong.
        """
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until all that was launched has ended.

        Raises:
            CudaError: It went wrong.
        """
        self._call("cuCtxSynchronize")

    def launch(self, blocks: int = 1, threads: int = 1, buffer: int | None = None) -> None:
        """Launch it on the default stream, and do not wait.

        Args:
            blocks: Of the grid.
            threads: Of each block.
            buffer: An address on the GPU to give instead of the buffer of its own.

        Raises:
            CudaError: It was refused.
        """
        given = self._buffer if buffer is None else ctypes.c_uint64(buffer)
        argument = (ctypes.c_void_p * 1)(ctypes.addressof(given))
        self._call("cuLaunchKernel", self._function, blocks, 1, 1, threads, 1, 1, 0, None, argument, None)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise CudaError(name, code)


def main() -> int:
    """As a process of its own: `fault` prints when it launched and what came of it; `small` runs until it is ended."""
    try:
        if sys.argv[1:] == ["small"]:
            kernel = Kernel(SMALL, "small")
            while True:
                kernel.run()
                time.sleep(0.01)
        kernel = Kernel(FAULT, "fault")
        print(time.monotonic_ns(), flush=True)
        kernel.run()
    except CudaError as error:
        print(error, flush=True)
        return 0 if error.code > 0 else 1
    print("the kernel did not fail", flush=True)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
