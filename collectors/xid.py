"""What the NVIDIA driver's XID error codes mean, and what to do first.

Codes and actions follow NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, the
"immediate action" of each code for Ampere and newer); the words are ours. Codes that only video or display engines
raise are not listed: they read as unknown.
"""

from __future__ import annotations

from enum import StrEnum

from llmtop.frozen import frozen
from llmtop.model import Severity

FALLEN_OFF_THE_BUS = 79
"""The XID of a GPU that no longer answers on PCIe (NVIDIA, XID Errors)."""
_CATALOGUE = "a code that is not listed here: look it up in NVIDIA's XID catalogue"


class Action(StrEnum):
    """What to do first."""

    NOTHING = ""
    RESTART_PROGRAM = "restart the program"
    RESET_GPU = "take every process off the GPU and reset it"
    RESTART_MACHINE = "drain and restart the machine"
    RESTART_VM = "restart the virtual machine"
    CHECK_LINKS = "check the NVLinks: nvidia-smi nvlink -s, nvidia-smi nvlink -e"
    CHECK_POWER = "check the power cables of the GPU"
    FOLLOW_OTHER = "follow the other XIDs beside it"
    UPDATE_DRIVER = "update driver and firmware"
    CONTACT_SUPPORT = "contact the vendor's support"


@frozen
class Xid:
    """One code."""

    code: int
    meaning: str
    action: Action
    severity: Severity

    def __str__(self) -> str:
        return "; ".join(part for part in (f"XID {self.code}: {self.meaning}", self.action.value) if part)


# Code (or a range) | meaning | action | severity where it is not the action's.
_TABLE = """
8       | GPU stopped processing                                        | RESTART_PROGRAM
11      | a command that the GPU cannot read                            | RESTART_PROGRAM
13      | a kernel raised an exception: bad address or instruction      | RESTART_PROGRAM
25      | a command that the GPU must not run                           | RESTART_PROGRAM
31      | memory page fault: a kernel touched memory that is not its    | RESTART_PROGRAM
32      | a command was corrupted on its way to the GPU                 | RESTART_PROGRAM
37-38   | context-switch firmware error                                 | NOTHING
39-41   | copy engine error                                             | RESTART_PROGRAM
43      | the work of a program was stopped                             | NOTHING
44      | fault during a context switch                                 | NOTHING
45      | work was cleaned up after an earlier error, or its end        | FOLLOW_OTHER
46      | GPU stopped processing                                        | RESET_GPU
48      | double-bit ECC error: memory cannot be corrected              | RESET_GPU
54      | auxiliary power is not connected                              | CHECK_POWER
62      | internal microcontroller halted                               | RESET_GPU
63      | a memory row is to be replaced by a spare at the next reset   | NOTHING
64      | a faulty memory row could not be replaced                     | RESET_GPU
66-67   | the driver touched what it must not                           | NOTHING
69      | a command of the wrong class                                  | RESTART_PROGRAM
70-72   | copy engine error                                             | RESTART_PROGRAM
74      | NVLink error                                                  | CHECK_LINKS
75-77   | copy engine error                                             | RESTART_PROGRAM
78      | a virtual GPU could not be started                            | UPDATE_DRIVER
79      | the GPU has fallen off the bus                                | RESTART_MACHINE
80      | data was corrupted on its way to the GPU                      | RESTART_PROGRAM
85      | copy engine error                                             | RESTART_PROGRAM
92      | many single-bit ECC errors                                    | NOTHING
93      | the board's information memory wears out                      | NOTHING
94      | memory error that was contained to one program                | RESTART_PROGRAM
95      | memory error that was not contained: all programs are at risk | RESET_GPU
109     | context switch timed out                                      | RESET_GPU
110     | security fault                                                | RESET_GPU
119     | the GPU's firmware (GSP) does not answer                      | RESET_GPU
120     | the GPU's firmware (GSP) failed                               | RESET_GPU
121     | error on the link between CPU and GPU (C2C)                   | NOTHING
126-135 | copy engine error                                             | RESTART_PROGRAM
136     | NVLink training failed                                        | RESET_GPU
137     | NVLink: an access was refused                                 | NOTHING
140     | ECC error that was not recovered                              | RESET_GPU
141     | CUDA fast path error                                          | NOTHING
143     | the GPU could not be initialised                              | RESET_GPU
144-150 | NVLink error                                                  | CHECK_LINKS
151     | key rotation failed                                           | RESTART_VM
154     | the driver asks for another recovery action                   | FOLLOW_OTHER
155     | NVLink error                                                  | RESET_GPU
156     | a part of the GPU is to be retired at the next reset          | RESET_GPU      | warning
157     | a faulty part of the GPU could not be retired                 | NOTHING
158     | GPU timed out for good                                        | RESET_GPU
159     | error on the bus to the CPU (CHI)                             | CONTACT_SUPPORT
160     | a memory channel was retired                                  | NOTHING
161     | a faulty memory channel could not be retired                  | NOTHING
167     | PCIe timed out for good                                       | CONTACT_SUPPORT
168     | less GPU memory than there should be                          | CONTACT_SUPPORT
169     | internal microcontroller halted                               | CONTACT_SUPPORT
171     | the memory error of XID 48 was in DRAM                        | FOLLOW_OTHER
172     | the memory error of XID 48 was in SRAM                        | FOLLOW_OTHER
"""
_MILD = frozenset({Action.NOTHING, Action.FOLLOW_OTHER})


def _rows(line: str) -> list[Xid]:
    codes, meaning, action_name, *severity = (cell.strip() for cell in line.split("|"))
    first, _, last = codes.partition("-")
    action = Action[action_name]
    usual = Severity.WARNING if action in _MILD else Severity.ERROR
    level = Severity(severity[0]) if severity else usual
    return [Xid(code, meaning, action, level) for code in range(int(first), int(last or first) + 1)]


XIDS = {xid.code: xid for line in _TABLE.strip().splitlines() for xid in _rows(line)}


def xid(code: int) -> Xid:
    """What is known of a code.

    >>> print(xid(79))
    XID 79: the GPU has fallen off the bus; drain and restart the machine
    >>> xid(1234).severity
    <Severity.ERROR: 'error'>
    """
    return XIDS.get(code) or Xid(code, _CATALOGUE, Action.NOTHING, Severity.ERROR)
