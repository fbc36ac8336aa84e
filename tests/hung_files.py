"""A file system that hangs: FUSE whose requests are taken and never answered, as a dead NFS server's are not."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def hung(folder: Path) -> Iterator[Path]:
    """Skips the test where it cannot be mounted."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"fuse", bytes(folder), b"fuse", 0, options.encode()) != 0:
        os.close(device)
        pytest.skip(f"FUSE cannot be mounted: {os.strerror(ctypes.get_errno())}")
    taken = threading.Thread(target=_take, args=(device,), daemon=True)
    taken.start()
    try:
        yield folder
    finally:
        libc.umount2(bytes(folder), 1 | 2)  # MNT_FORCE aborts what waits, MNT_DETACH takes it out of sight
        taken.join(30)
        os.close(device)


def _take(device: int) -> None:
    try:
        while os.read(device, 1 << 17):
            pass
    except OSError:  # ENODEV: unmounted
        return
