"""NVML's return codes as reasons and remedies."""

from __future__ import annotations

from llmtop.model import Unknown, UnknownKind
from llmtop.text import clean

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13
UNKNOWN_ERROR = 999
GPU_DOWN = frozenset({1, 9, 15, 16, 18})
"""After these nothing more can be had of a GPU: uninitialized, driver not loaded, lost, reset required, mismatch."""

_DOES_NOT_HAVE_IT = "this driver's NVML does not have it"
_REASONS = {
    1: Unknown("NVML was shut down", "restart llmtop", UnknownKind.PASSING),
    INVALID_ARGUMENT: Unknown("this driver does not know the request", "a newer driver may"),
    NOT_SUPPORTED: Unknown("the driver does not report it for this GPU"),
    4: Unknown("no permission to use the GPU", "ls -l /dev/nvidia* and join the group that owns them, or use sudo"),
    NOT_FOUND: Unknown("the driver has no such object any more"),
    9: Unknown("the NVIDIA kernel driver is not loaded", "sudo modprobe nvidia, and look at: dmesg | grep -i nvrm"),
    12: Unknown(
        "libnvidia-ml.so.1 not found: there is no NVIDIA driver here",
        "where there is a GPU, install the driver; a container needs `docker run --gpus all`",
    ),
    FUNCTION_NOT_FOUND: Unknown(_DOES_NOT_HAVE_IT, "upgrade the driver"),
    15: Unknown(
        "the GPU is lost: it has fallen off the bus",
        "dmesg | grep -i xid, then drain the machine; a reset needs every process off the GPU, llmtop included",
    ),
    16: Unknown("the GPU needs a reset", "stop what uses it, llmtop included, then: sudo nvidia-smi --gpu-reset"),
    17: Unknown("the operating system refused NVML", "dmesg | grep -i nvrm"),
    18: Unknown(
        "driver and library differ in version: the driver was upgraded while in use",
        "reboot, or unload and load the nvidia kernel modules",
    ),
    21: Unknown("the driver has no data yet"),
    25: Unknown(_DOES_NOT_HAVE_IT, "upgrade the driver, or nvidia-ml-py"),
    UNKNOWN_ERROR: Unknown(
        "NVML says only Unknown Error: in a container, `systemctl daemon-reload` on the host takes the GPUs away",
        "restart the container; outside of one: dmesg | grep -i nvrm",
    ),
}


def explain_code(code: int) -> Unknown:
    """What an NVML return code means to the user, and what to do.

    >>> explain_code(9).reason
    'the NVIDIA kernel driver is not loaded'
    >>> explain_code(77).reason
    'NVML error 77'
    """
    return _REASONS.get(code, Unknown(f"NVML error {code}"))


def code_of(error: Exception) -> int | None:
    """The return code behind a pynvml error; None for any other error."""
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else None


def explain(error: Exception) -> Unknown:
    """What a failed NVML call means to the user, and what to do."""
    if isinstance(error, UnicodeDecodeError):
        return Unknown("the driver's answer is not text")
    code = code_of(error)
    if code is None:
        return Unknown(clean(f"NVML failed: {type(error).__name__}: {error}"))
    return explain_code(code)
