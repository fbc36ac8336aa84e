"""What is slow or never to change about a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llmtop.capability import fp32_lanes
from llmtop.collectors.nvml.errors import NOT_SUPPORTED, code_of, explain
from llmtop.collectors.nvml.readings import field, nvlink_states, shared_memory
from llmtop.facts import GpuFact
from llmtop.model import Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llmtop.collectors.nvml.device import Device
    from llmtop.model import Fact

_NO_NVLINK = Unknown("the driver shows no NVLink of this GPU")
_ECC_CURRENT, _ROWS_PENDING, _ROWS_FAILED, _RECOVERY_ACTION = 1, 144, 145, 230
_RECOVERY_ACTIONS = (
    "none",
    "reset the GPU",
    "reboot the machine",
    "stop what uses several GPUs",
    "take every process off the GPU and reset it",
    "recover the IMEX domain",
    "reset the bus",
    "reboot the whole system",
)
"""In the order of NVML_GPU_RECOVERY_ACTION_*."""


def _memory_total(device: Device) -> Fact:
    total = device.fact(lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle).total)
    shared = shared_memory(device) if isinstance(total, Unknown) else None
    return total if shared is None else shared.total


def lasting_facts(device: Device) -> dict[str, Fact]:
    """What stays as long as the driver is loaded."""
    return {
        GpuFact.NAME: device.fact(lambda nvml, handle: nvml.nvmlDeviceGetName(handle)),
        GpuFact.UUID: device.fact(lambda nvml, handle: nvml.nvmlDeviceGetUUID(handle)),
        GpuFact.PCI_BUS_ID: device.fact(lambda nvml, handle: nvml.nvmlDeviceGetPciInfo(handle).busId),
        GpuFact.MINOR: device.fact(lambda nvml, handle: nvml.nvmlDeviceGetMinorNumber(handle)),
        GpuFact.DRIVER: device.fact(lambda nvml, _: nvml.nvmlSystemGetDriverVersion()),
        GpuFact.MEMORY_TOTAL: _memory_total(device),
        GpuFact.BUS_WIDTH_BITS: device.fact(lambda nvml, handle: nvml.nvmlDeviceGetMemoryBusWidth(handle)),
        GpuFact.COMPUTE_CAPABILITY: device.fact(
            lambda nvml, handle: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle))
        ),
        GpuFact.SM_COUNT: device.fact(sm_count),
        GpuFact.MAX_SM_MHZ: device.fact(
            lambda nvml, handle: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
        ),
        GpuFact.MAX_MEMORY_MHZ: device.fact(
            lambda nvml, handle: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)
        ),
        GpuFact.MAX_POWER_W: device.fact(
            lambda nvml, handle: nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)[1] / 1e3
        ),
        GpuFact.PCIE_MAX_GENERATION: device.fact(lambda nvml, handle: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        GpuFact.PCIE_MAX_WIDTH: device.fact(lambda nvml, handle: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)),
    }


def changing_facts(device: Device, links: Sequence[bool] | Unknown) -> dict[str, Fact]:
    """What an administrator or a fault can change while we look; `links` as `nvlink_states` has just told them."""
    return {
        GpuFact.MIG: device.fact(
            lambda nvml, handle: "enabled" if nvml.nvmlDeviceGetMigMode(handle)[0] else "disabled"
        ),
        GpuFact.NVLINKS: _nvlinks(links),
        GpuFact.ECC: device.fact(lambda nvml, handle: "enabled" if field(nvml, handle, _ECC_CURRENT) else "disabled"),
        GpuFact.ROW_REMAPPING: device.fact(_row_remapping),
        GpuFact.RECOVERY_ACTION: device.fact(_recovery_action),
    }


def sm_count(nvml: Any, handle: Any) -> int:
    """Streaming multiprocessors of the whole GPU."""
    cores = int(nvml.nvmlDeviceGetNumGpuCores(handle))
    return cores // fp32_lanes(nvml.nvmlDeviceGetCudaComputeCapability(handle))


def links_of(device: Device) -> Sequence[bool] | Unknown:
    """Of each NVLink whether it is up, or why that is not known: a call for each link, so asked once a look.

    Raises:
        GpuDownError: The GPU does not answer any more.
    """
    try:
        states: list[bool] = device.ask(nvlink_states)
    except device.error as error:
        return _NO_NVLINK if code_of(error) == NOT_SUPPORTED else explain(error)
    return states


def _nvlinks(links: Sequence[bool] | Unknown) -> int | Unknown:
    return links if isinstance(links, Unknown) else len(links)


def _row_remapping(nvml: Any, handle: Any) -> str:
    """Whether a faulty row of memory waits for a reset to be replaced, or could not be."""
    if field(nvml, handle, _ROWS_FAILED):
        return "failed"
    return "pending" if field(nvml, handle, _ROWS_PENDING) else "none"


def _recovery_action(nvml: Any, handle: Any) -> str:
    action = int(field(nvml, handle, _RECOVERY_ACTION))
    return _RECOVERY_ACTIONS[action] if action < len(_RECOVERY_ACTIONS) else f"action {action} of NVML's list"
