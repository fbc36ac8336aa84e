"""New messages of the kernel log, and what the NVIDIA driver says in them of failing GPUs.

The log tells more of an XID than NVML's event does: the process, and the kind of fault. It also tells of GPUs that fell
off the bus without an XID. Reading it takes a right that an ordinary user often lacks.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from llmtop.collectors.xid import FALLEN_OFF_THE_BUS
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = "/dev/kmsg"
_MOST_RECORDS = 1000
"""Taken per look; a storm of messages goes on with the next one."""
_RECORD_BYTES = 8192
"""What the kernel asks a reader of /dev/kmsg to have room for (Documentation/ABI/testing/dev-kmsg)."""
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d{1,6})"
    r"(?:, pid='?<?(?P<pid>\w+)>?'?)?(?:, name=(?P<name>[^,]+))?,? ?(?P<detail>.*)"
)
_OFF_THE_BUS = re.compile(r"NVRM: GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F:.]+?):? .*fallen off the bus")
_PCI = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.\d)?\.?")

PciAddress = tuple[int, int, int]


@frozen
class XidLine:
    """One message of the driver about a fault.

    Attributes:
        pci: Domain, bus and device, as numbers.
        process: "pid 505, c" where the message names it; empty otherwise.
        detail: The driver's own words.
    """

    pci: PciAddress
    code: int
    process: str
    detail: str


def pci_address(text: str) -> PciAddress | None:
    """Domain, bus and device from any way of writing a PCI address; None where it is none.

    >>> pci_address("00000000:2B:00.0"), pci_address("0000:2b:00")
    ((0, 43, 0), (0, 43, 0))
    """
    found = _PCI.fullmatch(text)
    return None if found is None else (int(found[1], 16), int(found[2], 16), int(found[3], 16))


def xid_line(message: str) -> XidLine | None:
    """What a message says of a GPU's fault; None for all other messages.

    >>> xid_line("NVRM: Xid (PCI:0000:00:06): 13, pid=505, name=c, Graphics Exception: channel 0x0a").process
    'pid 505, c'
    >>> xid_line("NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.").code
    79
    """
    found = _XID.search(message) or _OFF_THE_BUS.search(message)
    pci = pci_address(found["pci"]) if found else None
    if found is None or pci is None:
        return None
    said: dict[str, str] = {"code": str(FALLEN_OFF_THE_BUS), "pid": "", "name": "", "detail": "", **found.groupdict("")}
    pid = f"pid {said['pid']}" if said["pid"].isdigit() else ""
    name = "" if said["name"].startswith("<") else said["name"]
    return XidLine(pci, int(said["code"]), ", ".join(part for part in (pid, name) if part), said["detail"].strip())


def _open() -> int:
    fd = os.open(PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.lseek(fd, 0, os.SEEK_END)  # only what is new from here on
    return fd


def open_from_start() -> int:
    """For a `KernelLog` of all that the kernel still keeps."""
    return os.open(PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class KernelLog:
    """The messages since the last look.

    Args:
        opener: Gives a descriptor that reads one record at a time and never waits.
    """

    def __init__(self, opener: Callable[[], int] = _open) -> None:
        self._opener = opener
        self._fd: int | None = None
        self.why_not: Unknown | None = None

    def open(self) -> None:
        """Begin here; `why_not` says why it cannot be read."""
        try:
            self._fd, self.why_not = self._opener(), None
        except OSError as error:
            remedy = "sudo, or: sudo sysctl kernel.dmesg_restrict=0; a container needs --device /dev/kmsg"
            self.why_not = Unknown(f"the kernel log cannot be read: {error.strerror}", remedy)

    def close(self) -> None:
        """Stop reading."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def messages(self) -> list[str]:
        """New messages, oldest first, cleaned."""
        found: list[str] = []
        for _ in range(_MOST_RECORDS if self._fd is not None else 0):
            try:
                record = os.read(self._fd or 0, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # messages were overwritten before they were read; the next read goes on behind
                continue
            except OSError as error:
                self.close()
                self.why_not = Unknown(f"the kernel log cannot be read any more: {error.strerror}")
                break
            if not record:
                break
            found.append(_message(record))
        return found


def _message(record: bytes) -> str:
    """The text of "priority,sequence,microseconds,flags;text", without the key=value lines below it."""
    text = record.partition(b";")[2].split(b"\n", 1)[0]
    return clean(text.decode("utf-8", "replace"))
