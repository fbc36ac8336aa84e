"""A stand-in NVML library: compiles it, and steers it while it is in use.

Keys of the machine: `gpus` (number), `init`-like failures as `fail.nvmlInitWithFlags` (an NVML code), `driver`, `nvml`,
`process_name.<pid>`, `hang.<function>` (1: until the key is taken away), `fail.<function>` (code), `fail_everything`
(a code from every call, with or without a GPU).

Keys of a GPU, for `set_gpu`: `name`, `uuid`, `cores`, `bus_width`, `cc_major`, `cc_minor`, `max_sm_mhz`,
`max_memory_mhz`, `memory_total`, `memory_used`, `memory_reserved`, `power_mw`, `power_limit_mw`, `energy_mj`,
`clock_reasons`, `sm_mhz`, `memory_mhz`, `temperature`, `util`, `util_memory`, `pcie_gen`, `pcie_width`
(and `max_` of both), `minor`, `nvlinks`, `nvlinks_down`, `nvlink_replays`, `event_types` (mask), `field.<id>` (a number
or "na"), `shares` ("pid:percent") with `shares_us` (its time stamp, the wall clock otherwise), `compute` and `graphics`
("pid:bytes pid:na pid:bytes:instance"),
`gpm` (0 or 1), `gpm.<id>` (a number or "nan"), `gpm_code.<id>`, `gpm_least_window_ms` (below it
the driver's trap: DRAM NaN, all else 0.0), `lost` (1: "GPU is lost" from everything), `fail_all` (a code from
everything), `fail.<function>`, `hang.<function>`, `wave` (relative swing of moving values), `xid` with `xid_count`,
`xid_instance` and `event_type`; `raw_ms` (until when GPM's raw samples count: without it they are empty), with
`raw_ratio` (their SM clock over `sm_mhz`) and `raw_time_ratio` (how fast their time runs).

MIG: `mig` (1), `mig_instances` ("1 2 2": the GPU instance of each compute instance), `mig_layout` (another number gives
the instances other UUIDs), `mig<instance>.<key>` with `profile`, `sm_count`, `memory_total`, `memory_used`, `gpm.<id>`.
HANG_LOADING in the environment has the library hang for so many seconds while it is loaded.
A GPU whose index is not below `gpus` is lost.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
CONTROL_VARIABLE = "FAKE_NVML_CONTROL"
HANG_LOADING = "FAKE_NVML_HANG_LOADING"

GPM_IDS = {
    "graphics": 1,
    "sm": 2,
    "occ": 3,
    "int_": 4,
    "tensor": 5,
    "dfma": 6,
    "hmma": 7,
    "dmma": 8,
    "imma": 9,
    "dram": 10,
    "fp64": 11,
    "fp32": 12,
    "fp16": 13,
    "pcie_tx": 20,
    "pcie_rx": 21,
    "c2c_tx": 100,
    "c2c_rx": 101,
    "nvlink_rx": 60,
    "nvlink_tx": 61,
}
"""GPM metric ids by the names that the recorded samples use."""

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, VERSION_MISMATCH, GPU_IS_LOST, UNKNOWN = 3, 4, 9, 18, 15, 999
"""NVML return codes that tests ask for."""


def compiler() -> str | None:
    """The C compiler to use, if there is one."""
    return shutil.which("gcc") or shutil.which("cc")


def build(folder: Path) -> Path:
    """Compile the library into `folder` and return its path; its file name and soname are the real one's."""
    library = folder / "libnvidia-ml.so.1"
    command = [compiler() or "cc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
    command += ["-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE), "-lm", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


class FakeNvml:
    """The control file of one stand-in machine; every change takes effect with the library's next call."""

    def __init__(self, library: Path, control: Path) -> None:
        self.library = library
        self.control = control
        self._values: dict[str, str] = {}
        self._write()

    @property
    def env(self) -> dict[str, str]:
        """What to add to a process's environment so that it meets this machine."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), CONTROL_VARIABLE: str(self.control)}

    def set(self, **values: object) -> None:
        """Set keys of the machine; None takes a key away. Dotted keys: `set(**{"fail.nvmlInitWithFlags": 9})`."""
        for key, value in values.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = _escaped(str(value))
        self._write()

    def clear(self, **values: object) -> None:
        """Forget every key, then set these."""
        self._values.clear()
        self.set(**values)

    def set_gpu(self, gpu: int | None, **values: object) -> None:
        """Set keys of one GPU, or of all (None)."""
        prefix = "*" if gpu is None else str(gpu)
        self.set(**{f"{prefix}.{key}": value for key, value in values.items()})

    def set_gpm(self, gpu: int | None, **percentages: float) -> None:
        """Set GPM metrics of one GPU, or of all (None), by the names in `GPM_IDS`."""
        self.set_gpu(gpu, **{f"gpm.{GPM_IDS[name]}": value for name, value in percentages.items()})

    def _write(self) -> None:
        lines = "".join(f"{key} = {value}\n" for key, value in self._values.items())
        fresh = self.control.with_suffix(".new")
        fresh.write_text(lines, encoding="ascii")
        fresh.replace(self.control)


def _escaped(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}" for byte in raw)
