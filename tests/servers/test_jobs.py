"""Ranks of a job that no engine's command line names: torchrun, mpirun, processes that PyTorch's NCCL groups join."""

from __future__ import annotations

from pathlib import Path

from llmtop import procfs


def process(proc: Path, pid: int, parent: int, environment: str = "", *threads: str) -> None:
    (proc / str(pid) / "task").mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (python) S {parent} " + " ".join(["0"] * 48))
    (proc / str(pid) / "environ").write_text(environment.replace(" ", "\0"))
    for tid, name in enumerate(threads, start=pid):
        (proc / str(pid) / "task" / str(tid)).mkdir()
        (proc / str(pid) / "task" / str(tid) / "comm").write_text(f"{name}\n")


def test_launchers_number_their_ranks_and_helpers_of_a_rank_are_none(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, "HOME=/root")
    process(tmp_path, 11, 10, "RANK=0 LOCAL_RANK=0 WORLD_SIZE=2")
    process(tmp_path, 12, 10, "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2")
    process(tmp_path, 13, 12, "RANK=1 LOCAL_RANK=1 WORLD_SIZE=2")
    process(tmp_path, 20, 1, "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4")
    process(tmp_path, 30, 1, "RANK=0 WORLD_SIZE=1")
    ranks = {pid: procfs.job_rank(pid, tmp_path) for pid in (10, 11, 12, 13, 20, 30)}
    assert ranks == {10: None, 11: "rank 0", 12: "rank 1", 13: None, 20: "rank 3", 30: None}


def test_processes_with_a_group_of_nccl_are_ranks_of_one_job(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, "", "python", "pt_nccl_watchdg")
    process(tmp_path, 11, 1, "", "python", "pt_data_pin")
    assert [procfs.job_rank(pid, tmp_path) for pid in (10, 11)] == ["NCCL process 10", None]
