"""The version of a server that tells it on no page."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmtop.servers.packages import installed
from llmtop.servers.registry import BY_KIND

PACKAGES = "/opt/venv/lib/python3.12/site-packages"
MAPS = f"""7f00-7f01 r-xp 00000000 fe:00 1 /usr/lib/libc.so.6
7f02-7f03 r-xp 00000000 fe:00 2 {PACKAGES}/torch/lib/libtorch.so
7f04-7f05 r-xp 00000000 fe:00 3 {PACKAGES}/sgl_kernel/ops.so
"""


def process(proc: Path, pid: int, *packages: str) -> None:
    """One whose root, as of a container, has these packages."""
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(f"{pid} (python) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 99 1 5 0")
    (folder / "maps").write_text(MAPS)
    for name in packages:
        (folder / "root" / PACKAGES.lstrip("/") / name).mkdir(parents=True)


@pytest.mark.parametrize(
    ("packages", "version"),
    [
        (("sglang-0.5.2.dist-info", "sglang"), "0.5.2"),
        (("sglang-0.5.3rc1+cu129.dist-info",), "0.5.3rc1+cu129"),
        (("sglang_router-0.1.9.dist-info", "torch-2.8.0.dist-info"), None),
        (("sglang-\x1b[2J.dist-info",), None),
        ((), None),
    ],
)
def test_the_package_tells_the_version(tmp_path: Path, packages: tuple[str, ...], version: str | None) -> None:
    process(tmp_path, 40, *packages)
    assert installed(BY_KIND["sglang"], 40, tmp_path).get("version") == version


def test_what_is_no_python_package_or_gone_has_none(tmp_path: Path) -> None:
    process(tmp_path, 41, "llama-1.0.dist-info")
    assert installed(BY_KIND["llamacpp"], 41, tmp_path) == {}
    assert installed(BY_KIND["sglang"], 42, tmp_path) == {}
