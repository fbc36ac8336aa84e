"""Files of other processes: opened with their rights, within their root, and never waited for too long."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from llmtop import facts, foreign, foreign_reader
from llmtop.analysis.roofline import model_facts
from llmtop.model import Unknown
from llmtop.servers import command_line, told
from llmtop.servers.recognise import find_target
from llmtop.servers.registry import BY_KIND
from tests.hung_files import hung

NOBODY = 65534
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with process 7, whose root holds model/ and links that try to leave."""
    root = tmp_path / "proc" / "7" / "root"
    (root / "model").mkdir(parents=True)
    (root / "model" / "config.json").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (root / "secret").write_text("the container's own")
    (root / "absolute").symlink_to(tmp_path / "secret")
    (root / "named").symlink_to("/secret")
    (root / "up").symlink_to("../../../secret")
    (root / "circle").symlink_to("circle")
    return tmp_path / "proc"


@pytest.mark.parametrize("find", [foreign_reader.resolved, foreign_reader.walked])
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/model/config.json", "inside"),
        ("model/../model/./config.json", "inside"),
        ("/named", "the container's own"),
        ("/up", "the container's own"),
        ("/../../../../secret", "the container's own"),
        ("/absolute", None),
        ("/circle", None),
        ("/model/config.json/x", None),
        ("/none", None),
    ],
)
def test_no_link_leads_out_of_a_root(
    proc: Path, find: Callable[[int, str], int], path: str, content: str | None
) -> None:
    root = os.open(proc / "7" / "root", os.O_PATH | os.O_DIRECTORY)
    try:
        found = find(root, path)
    except OSError:
        assert content is None
    else:
        assert Path(f"/proc/self/fd/{found}").read_text() == content
        os.close(found)
    finally:
        os.close(root)


def test_a_file_is_read_up_to_a_size_and_a_folder_is_listed(proc: Path) -> None:
    (proc / "7" / "root" / "model" / "a.safetensors").write_bytes(b"x" * 100)
    assert foreign.read(7, "/model/config.json", 3, proc) == b"ins"
    assert foreign.sizes(7, "/model", "*.safetensors", proc) == {"a.safetensors": 100}
    folder = foreign.opened_folder(7, "/model", proc)
    with os.scandir(folder) as entries:
        assert {one.name for one in entries} == {"config.json", "a.safetensors"}
    os.close(folder)


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "socket", "nothing", "process"])
def test_what_is_no_regular_file_is_not_opened(proc: Path, kind: str) -> None:
    path = proc / "7" / "root" / "model" / "odd"
    with ExitStack() as stack:
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "socket":
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        elif kind == "device":
            path.symlink_to("/zero")
            (proc / "7" / "root" / "zero").symlink_to("/dev/zero")
        with pytest.raises(OSError, match=r".") as raised:
            foreign.read(8 if kind == "process" else 7, "/model/odd", 100, proc)
    assert not isinstance(raised.value, TimeoutError)


def test_a_device_is_not_opened() -> None:
    with pytest.raises(OSError, match=r".") as raised:
        foreign.read(os.getpid(), "/dev/zero", 100)
    assert not isinstance(raised.value, TimeoutError)


@NEEDS_ROOT
def test_root_reads_nothing_that_the_process_could_not(tmp_path: Path) -> None:
    """Not by a link from its own folder, nor by a descriptor that it has without the right to read."""
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    with ExitStack() as stack:
        public = stack.enter_context(public_folder())
        (public / "config.json").symlink_to(secret)
        (public / "log").write_text("its log")
        output = os.open(secret, os.O_PATH)
        stack.callback(os.close, output)
        log = stack.enter_context((public / "log").open("a"))
        process = subprocess.Popen(["/bin/sleep", "60"], user=NOBODY, group=NOBODY, stderr=output, stdout=log)
        stack.callback(process.wait)
        stack.callback(process.kill)
        for ask in (
            lambda: foreign.read(process.pid, str(secret), 100),
            lambda: foreign.read(process.pid, str(public / "config.json"), 100),
            lambda: foreign.opened_output(process.pid, 2),
        ):
            with pytest.raises(PermissionError):
                ask()
        opened = foreign.opened_output(process.pid, 1)
        stack.callback(os.close, opened)
        assert foreign.end_of(opened, 3) == b"log"


@contextmanager
def public_folder() -> Iterator[Path]:
    """One that nobody may look into, other than pytest's own."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("status", "identity"),
    [
        ("Uid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\nGroups:\t4 27 \n", (1000, 100, [4, 27])),
        ("Uid:\t1000\t0\t0\t0\nGid:\t100\t0\t0\t0\nGroups:\t\n", (1000, 100, [])),  # a setuid program, such as sudo
        ("Uid:\t0\t33\t0\t33\nGid:\t0\t33\t0\t33\n", (33, 33, [])),
        ("Name:\tx\n", None),
    ],
)
def test_a_process_counts_as_who_started_it(tmp_path: Path, status: str, identity: object) -> None:
    (tmp_path / "status").write_text(status)
    folder = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    assert foreign_reader.identity_of(folder) == identity
    os.close(folder)


@pytest.mark.parametrize(
    ("mode", "user", "groups", "may"),
    [
        (0o400, 0, [], True),
        (0o040, 0, [], False),
        (0o040, 1, [0], True),
        (0o404, 1, [0], False),
        (0o004, 1, [], True),
        (0o440, 1, [], False),
    ],
)
def test_who_cannot_become_the_user_goes_by_a_files_mode(
    tmp_path: Path, mode: int, user: int, groups: list[int], may: bool
) -> None:
    """User and groups count from the file's own."""
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(mode)
    state = (tmp_path / "file").stat()
    of_file = [state.st_gid + group for group in groups]
    identity = (state.st_uid + user, state.st_gid + 1, of_file)
    assert foreign_reader.may_be_read(state, identity) is may


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A reader that answers nothing before the file "go" is there, as on a file system that hangs."""
    program = tmp_path / "reader.py"
    program.write_text(
        "import os, socket, sys\n"
        "control = socket.socket(fileno=int(sys.argv[1])); control.send(b'+'); kept = []\n"
        "while True:\n"
        "    message, files, _, _ = socket.recv_fds(control, 1 << 16, 2)\n"
        "    if not message: break\n"
        "    kept += files\n"
        f"    with open({str(tmp_path / 'asked')!r}, 'a') as asked: asked.write('x')\n"
        f"    if os.path.exists({str(tmp_path / 'go')!r}):\n"
        "        for one in kept: os.write(one, b'+late'); os.close(one)\n"
        "        kept = []\n"
    )
    foreign.forget_all()
    monkeypatch.setattr(foreign, "_READER", program)
    monkeypatch.setattr(foreign, "PATIENCE_S", 0.05)
    yield tmp_path
    foreign.forget_all()


def test_what_does_not_answer_is_asked_once_and_again_when_it_has_answered(silent: Path) -> None:
    for _ in range(3):
        with pytest.raises(TimeoutError):
            foreign.read(1, "/a", 100)
    assert (silent / "asked").read_text() == "x"
    (silent / "go").touch()
    assert foreign.read(1, "/b", 100) == b"late"
    assert foreign.read(1, "/a", 100) == b"late"


def test_a_server_whose_model_does_not_answer_is_a_target_all_the_same(silent: Path) -> None:
    program = silent / "vllm"
    program.write_text("import sys; print('up', flush=True); sys.stdin.read()")
    command = [sys.executable, str(program), "serve", "/nfs/model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        target = find_target(process.pid)
        process.communicate()
    assert target.model == "/nfs/model"
    assert isinstance(target.dtype, Unknown)
    assert "does not answer" in target.dtype.reason


def test_one_users_files_that_do_not_answer_take_no_time_of_anothers(
    silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = dict.fromkeys(["/proc/1", "/proc/2"], 1000)
    monkeypatch.setattr(foreign, "_owner_of", lambda process: owners.get(process, 7))
    for path in "abcdefgh":
        with pytest.raises(TimeoutError):
            foreign.read(1, path, 100)
    assert (silent / "asked").read_text() == "x" * foreign._MOST_WAITING
    (silent / "go").touch()
    assert foreign.read(3, "/a", 100) == b"late"


def test_a_reader_that_was_killed_is_started_again(proc: Path) -> None:
    assert foreign.read(7, "/model/config.json", 100, proc) == b"inside"
    (pid,) = foreign.reader_pids()
    os.kill(pid, 9)
    assert foreign.read(7, "/model/config.json", 100, proc) == b"inside"


def test_a_file_system_that_hangs_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FUSE whose requests are taken and never answered: there the process that opens a file cannot even be killed."""
    monkeypatch.setattr(foreign, "PATIENCE_S", 0.2)
    with hung(tmp_path / "mount") as folder, pytest.raises(TimeoutError):
        foreign.read(os.getpid(), f"{folder}/config.json", 100)


def test_of_a_models_configuration_all_that_the_arithmetic_uses_is_kept() -> None:
    source = Path(model_facts.__file__).read_text()
    used = set(re.findall(r"""(?:_count\(config, |config\.get\()"([\w.]+)\"""", source)) | {*model_facts._EXPERT_COUNTS}
    kept = facts.CONFIG_TEXTS | facts.CONFIG_NUMBERS
    assert used <= kept, used - kept
    assert model_facts._NOT_ATTENTION.pattern in command_line.NOT_ATTENTION.pattern


def test_nothing_else_of_a_models_configuration_is_kept() -> None:
    config = {"hidden_size": 64, "auth": "local-0123", "secret": 7, "model_type": "x" * 500, "mamba_d_state": 16}
    assert command_line._single_values(config) == {"hidden_size": 64, "mamba_d_state": 16}


def test_a_file_of_flags_that_does_not_answer_is_said(silent: Path) -> None:
    argv = ("vllm", "serve", "m", "--config", "/nfs/flags.yaml")
    engine = BY_KIND["vllm"]
    config = told.file_of_flags(engine, argv, os.getpid())
    assert isinstance(config, Unknown)
    assert "does not answer" in config.reason
    assert told.with_file(argv, config) == argv
    facts = told.told(engine, argv, config, os.getpid(), command_line.model_facts(engine, argv, os.getpid()))
    assert config in facts.values()
