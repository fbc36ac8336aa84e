from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop import procfs
from llmtop.errors import TargetError
from llmtop.model import Feature, Target, Unknown
from llmtop.servers import listening
from llmtop.servers.recognise import find_servers, find_target, told_port
from llmtop.servers.registry import BY_KIND
from llmtop.settings import facts as facts_of_settings
from llmtop.settings import keys_of
from tests.collectors.processes import Fake, Running, threads, tree
from tests.collectors.tracing.probes import needs_unshare

VLLM = Fake(
    "api",
    (
        "/usr/bin/python3",
        "/opt/bin/vllm",
        "serve",
        "meta-llama/Llama-3.1-8B",
        "--dtype",
        "bfloat16",
        "--api-key",
        "sk-1",
    ),
    listen=True,
    children=(
        Fake("tracker", ("/usr/bin/python3", "-c", "from multiprocessing.resource_tracker import main;main(5)")),
        Fake(
            "core",
            ("VLLM::EngineCore",),
            name="VLLM::EngineCor",
            children=(Fake("w0", ("VLLM::Worker_TP0",)), Fake("w1", ("VLLM::Worker_TP1",))),
        ),
    ),
)


@pytest.fixture(scope="module")
def vllm() -> Iterator[Running]:
    with tree(VLLM) as running:
        yield running


def roles(target: Target, running: Running) -> dict[str, str]:
    key_by_pid = {pid: key for key, pid in running.pids.items()}
    return {key_by_pid[process.pid]: process.role for process in target.processes}


@pytest.mark.parametrize("key", ["api", "core", "w1", "tracker"])
def test_any_process_leads_to_the_whole_server(vllm: Running, key: str) -> None:
    target = find_target(vllm.pids[key])

    assert (target.pid, target.root_pid) == (vllm.pids[key], vllm.pids["api"])
    assert (target.kind, target.title) == ("vllm", "vLLM")
    assert roles(target, vllm) == {
        "api": "APIServer",
        "tracker": "resource_tracker",
        "core": "EngineCore",
        "w0": "Worker_TP0",
        "w1": "Worker_TP1",
    }
    assert target.ports == (vllm.ports["api"],)
    assert target.metrics_urls == (f"http://127.0.0.1:{vllm.ports['api']}/metrics",)
    assert not target.missing


def test_model_and_dtype_come_from_the_command_line(vllm: Running) -> None:
    target = find_target(vllm.pids["w0"])

    assert target.model == "meta-llama/Llama-3.1-8B"
    assert target.dtype == "bf16"


def test_secrets_of_the_command_line_are_hidden(vllm: Running) -> None:
    command = find_target(vllm.pids["api"]).facts["command"]

    assert "sk-1" not in str(command)
    assert "--api-key [redacted]" in str(command)


def test_servers_are_found_by_themselves(vllm: Running) -> None:
    found = {target.root_pid: target for target in find_servers()}

    assert found[vllm.pids["api"]].kind == "vllm"
    assert vllm.pids["core"] not in found


def test_a_thread_id_leads_to_its_process() -> None:
    with threads("sleeper") as program:
        tid = max(int(entry.name) for entry in Path(f"/proc/{program.pid}/task").iterdir())
        assert tid != program.pid

        assert find_target(tid).root_pid == program.pid


def test_a_plain_process_is_a_target_too() -> None:
    with threads("sleeper") as program:
        target = find_target(program.pid)

    assert target.kind == "process"
    assert target.processes[0].role == "main"
    assert isinstance(target.model, Unknown)
    assert "no server that llmtop knows" in target.model.reason
    assert target.missing[0].what == "target.metrics_urls"


def why_not_set(target: Target) -> str:
    """Why nobody knows how many requests a vLLM may run at once, of which the target is a process."""
    value = facts_of_settings(BY_KIND["vllm"], target.facts)[keys_of(Feature.MAX_RUNNING).value]
    assert isinstance(value, Unknown)
    return str(value)


def test_what_a_program_is_told_that_llmtop_does_not_know_is_not_hidden_by_rights() -> None:
    """Its metrics may be vLLM's (--metrics-url), and its command line is there for all to read."""
    with threads("sleeper") as program:
        why = why_not_set(find_target(program.pid))
    assert why.startswith("this process belongs to no server that llmtop knows (known are ")


def test_a_title_hides_what_a_server_was_told_from_root_too() -> None:
    with tree(Fake("core", ("VLLM::EngineCore",))) as running:
        target = find_target(running.pids["core"])
    said = (
        "the server has written a title over its command line (what started it has it: a unit, a container, a script)"
    )
    assert why_not_set(target) == said


def test_a_process_that_is_not_there() -> None:
    with pytest.raises(TargetError, match="no process 4194305 here"):
        find_target(4_194_305)  # beyond the largest PID that Linux gives (2**22)


def test_a_process_that_has_ended() -> None:
    with subprocess.Popen(["true"]) as program:
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(TargetError, match="has ended"):
            find_target(program.pid)


@pytest.mark.parametrize(
    "wrapper",
    [
        ("bash", "-c", "vllm serve m"),
        ("sudo", "vllm", "serve", "m"),
        ("nsys", "profile", "-o", "x", "python", "-m", "sglang.launch_server"),
        ("vim", "/opt/bin/vllm", "serve"),
    ],
)
def test_a_wrapper_is_not_taken_for_the_server_but_leads_to_it(wrapper: tuple[str, ...]) -> None:
    with tree(Fake("wrapper", wrapper, children=(VLLM,))) as running:
        for key in ("wrapper", "core"):
            assert find_target(running.pids[key]).root_pid == running.pids["api"]


@pytest.mark.parametrize(
    ("kind", "tree_root", "expected"),
    [
        (
            "sglang",
            Fake(
                "http",
                ("python3", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B", "--tp=2"),
                (
                    Fake("s0", ("sglang::scheduler_TP0",)),
                    Fake("s1", ("sglang::scheduler_TP1",)),
                    Fake("d", ("sglang::detokenizer",)),
                ),
            ),
            {"http": "http_server", "s0": "scheduler_TP0", "s1": "scheduler_TP1", "d": "detokenizer"},
        ),
        (
            "tgi",
            Fake(
                "l",
                ("text-generation-launcher", "--model-id", "Qwen/Qwen3-8B"),
                (
                    Fake("s", ("/opt/python", "/usr/bin/text-generation-server", "serve", "Qwen/Qwen3-8B")),
                    Fake("r", ("text-generation-router", "--port", "3000")),
                ),
            ),
            {"l": "launcher", "s": "shard", "r": "router"},
        ),
        (
            "trtllm",
            Fake(
                "f",
                ("python3", "/usr/local/bin/trtllm-serve", "serve", "Qwen/Qwen3-8B"),
                (Fake("w", ("python3", "-m", "mpi4py.futures.server")),),
            ),
            {"f": "APIServer", "w": "Worker"},
        ),
        (
            "ollama",
            Fake(
                "o",
                ("/usr/local/bin/ollama", "serve"),
                (Fake("r", ("/usr/local/lib/ollama/llama-server", "--model", "/m/x.gguf", "--port", "4000")),),
            ),
            {"o": "server", "r": "runner"},
        ),
        (
            "dynamo",
            Fake(
                "w",
                ("python3", "-m", "dynamo.vllm", "--model", "Qwen/Qwen3-8B"),
                (Fake("e", ("VLLM::EngineCore_DP0",)),),
            ),
            {"w": "vllm_worker", "e": "EngineCore_DP0"},
        ),
        ("lmdeploy", Fake("l", ("python3", "/b/lmdeploy", "serve", "api_server", "Qwen/Qwen3-8B")), {"l": "APIServer"}),
        ("triton", Fake("t", ("tritonserver", "--model-repository=/m")), {"t": "server"}),
        ("llamacpp", Fake("c", ("./build/bin/llama-server", "-m", "/m/qwen-Q4_K_M.gguf")), {"c": "server"}),
        (
            "demo",
            Fake(
                "api",
                ("/usr/bin/python3", "-m", "llmtop.demo.server", "--port", "9999"),
                (Fake("core", ("/usr/bin/python3", "-m", "llmtop.demo.engine")),),
            ),
            {"api": "APIServer", "core": "EngineCore"},
        ),
    ],
)
def test_servers_and_their_roles(kind: str, tree_root: Fake, expected: dict[str, str]) -> None:
    with tree(tree_root) as running:
        for pid in running.pids.values():
            target = find_target(pid)
            assert target.kind == kind
            assert roles(target, running) == expected


def test_llama_model_file_tells_its_quantization() -> None:
    with tree(Fake("c", ("llama-server", "-m", "/m/qwen-Q4_K_M.gguf"))) as running:
        target = find_target(running.pids["c"])

    assert (target.model, target.dtype) == ("/m/qwen-Q4_K_M.gguf", "q4_k_m")


def test_dtype_comes_from_the_models_configuration(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    configuration = {"torch_dtype": "float16", "quantization_config": {"quant_method": "awq"}}
    (tmp_path / "model" / "config.json").write_text(json.dumps(configuration))
    for model, cwd in ((str(tmp_path / "model"), None), ("model", tmp_path)):
        with tree(Fake("api", ("vllm", "serve", model)), cwd) as running:
            target = find_target(running.pids["api"])
            assert target.dtype == "fp16"
            assert target.facts["quantization"] == "awq"


def test_dtype_comes_from_the_download_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--Qwen--Qwen3-8B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"dtype": "bfloat16"}')
    with tree(Fake("api", ("vllm", "serve", "Qwen/Qwen3-8B")), env={"HF_HOME": str(tmp_path)}) as running:
        assert find_target(running.pids["api"]).dtype == "bf16"


def test_sizes_of_the_model_come_from_its_folder(tmp_path: Path) -> None:
    text = {"hidden_size": 4096, "tie_word_embeddings": False, "rope_scaling": {"factor": 8}, "eos": [1, 2]}
    configuration = {
        "model_type": "x\x1b[2J",
        "text_config": text,
        "quantization_config": {"bits": 4, "group_size": 64},
    }
    (tmp_path / "config.json").write_text(json.dumps(configuration))
    for name, size in (("model-1-of-2.safetensors", 300), ("model-2-of-2.safetensors", 200), ("other.safetensors", 7)):
        (tmp_path / name).write_bytes(b"x" * size)
    with tree(Fake("api", ("vllm", "serve", str(tmp_path)))) as running:
        found = find_target(running.pids["api"])

    assert found.facts["weights_bytes"] == 500
    assert found.config == {
        "model_type": "x␛[2J",
        "hidden_size": 4096,
        "tie_word_embeddings": False,
        "quantization_config.bits": 4,
        "quantization_config.group_size": 64,
    }


def test_a_gguf_file_is_its_weights(tmp_path: Path) -> None:
    (tmp_path / "m-Q4_0.gguf").write_bytes(b"x" * 123)
    with tree(Fake("c", ("llama-server", "-m", str(tmp_path / "m-Q4_0.gguf")))) as running:
        assert find_target(running.pids["c"]).facts["weights_bytes"] == 123


@pytest.mark.parametrize("content", ["", "[]", "{", '{"torch_dtype": 3, "quantization_config": []}', "[" * 100_000])
def test_a_damaged_configuration_leaves_the_dtype_unknown(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with tree(Fake("api", ("vllm", "serve", str(tmp_path)))) as running:
        dtype = find_target(running.pids["api"]).dtype

    assert isinstance(dtype, Unknown)
    assert "--dtype" in dtype.remedy


def test_fp8_quantization_is_the_dtype_of_the_products() -> None:
    argv = ("vllm", "serve", "m", "--quantization", "fp8", "--dtype", "bfloat16", "--kv-cache-dtype=fp8_e4m3")
    with tree(Fake("api", argv)) as running:
        target = find_target(running.pids["api"])

    assert target.dtype == "fp8"
    assert target.facts["kv_cache_dtype"] == "fp8_e4m3"


def test_a_server_that_names_no_model_says_so() -> None:
    with tree(Fake("core", ("VLLM::EngineCore",))) as running:
        target = find_target(running.pids["core"])

    assert isinstance(target.model, Unknown)
    assert isinstance(target.dtype, Unknown)


def test_hostile_command_lines_are_cleaned() -> None:
    with tree(Fake("api", ("vllm", "serve", "[/b]\x1b[2J\udcff\u202e", "x" * 500))) as running:
        target = find_target(running.pids["api"])

    assert target.model == "[/b]␛[2J\ufffd\ufffd"
    assert "\x1b" not in str(target.facts["command"])


def fake_proc(folder: Path, processes: dict[int, tuple[int, str]]) -> Path:
    """A /proc of parents and command lines."""
    for pid, (parent, command) in processes.items():
        (folder / str(pid)).mkdir()
        fields = " ".join(["0"] * 20)
        (folder / str(pid) / "stat").write_text(f"{pid} (python (3)) S {parent} {fields}")
        (folder / str(pid) / "status").write_text(f"Name:\tpython\nTgid:\t{pid}\n")
        (folder / str(pid) / "cmdline").write_text(command.replace(" ", "\0") + "\0")
        (folder / str(pid) / "comm").write_text("python\n")
        (folder / str(pid) / "fd").mkdir()
        (folder / str(pid) / "fd" / "3").symlink_to(f"/dev/nvidia{pid % 8}")
        (folder / str(pid) / "fd" / "4").symlink_to("/dev/nvidiactl")
    return folder


def test_a_server_that_is_process_1_of_its_container(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path, {1: (0, "python3 /opt/vllm serve m"), 4_194_306: (1, "VLLM::EngineCore")})

    target = find_target(4_194_306, proc)

    assert target.root_pid == 1
    assert [process.role for process in target.processes] == ["APIServer", "EngineCore"]


def test_gpus_are_the_devices_held_open_by_any_member(tmp_path: Path) -> None:
    processes = {4_194_306: (1, "python3 -m sglang.launch_server"), 4_194_307: (4_194_306, "sglang::scheduler_TP0")}

    target = find_target(4_194_306, fake_proc(tmp_path, processes))

    assert target.gpus == (2, 3)


def test_parents_that_go_in_circles_end(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path, {4_194_306: (4_194_307, "a"), 4_194_307: (4_194_306, "b")})

    assert find_target(4_194_306, proc).kind == "process"


@settings(deadline=None)  # a loaded machine is no failure
@given(st.binary(max_size=15), st.lists(st.integers(0, 2**63), min_size=21, max_size=40))
def test_a_process_name_never_shifts_the_fields(name: bytes, numbers: list[int]) -> None:
    line = b"7 (" + name + b") S " + " ".join(map(str, numbers)).encode()

    # Fields of proc_pid_stat(5) are counted from 1; the numbers here begin with field 4.
    assert procfs.parse_stat(line) == procfs.ProcStat(
        state="S",
        parent=numbers[0],
        cpu_ticks=numbers[10] + numbers[11],
        threads=numbers[16],
        start_ticks=numbers[18],
        rss_pages=numbers[20],
        system_ticks=numbers[11],
        faults=numbers[6],
        major_faults=numbers[8],
        nice=numbers[15],
    )


@settings(deadline=None)  # a loaded machine is no failure
@given(st.binary(max_size=300))
def test_no_stat_line_makes_it_fail(content: bytes) -> None:
    procfs.parse_stat(content)
    procfs.parse_stat(b"7 (x) S " + content)


def test_the_port_that_was_asked_for_comes_first() -> None:
    engine = BY_KIND["vllm"]
    addresses = [("127.0.0.1", 29500), ("0.0.0.0", 9000), ("127.0.0.1", 8000)]

    assert listening.ordered(addresses, engine, 9000)[0][1] == 9000
    assert listening.ordered(addresses, engine, None)[0][1] == 8000
    assert listening.ordered(addresses[:2], engine, None)[0][1] == 9000


def test_urls_of_wildcard_and_ipv6_addresses() -> None:
    addresses = [("0.0.0.0", 1), ("::", 2), ("::1", 3), ("10.0.0.7", 4)]

    assert listening.metrics_urls(BY_KIND["trtllm"], addresses) == (
        "http://127.0.0.1:1/prometheus/metrics",
        "http://localhost:2/prometheus/metrics",
        "http://[::1]:3/prometheus/metrics",
        "http://10.0.0.7:4/prometheus/metrics",
    )


def test_listening_ports_are_seen_without_rights(vllm: Running) -> None:
    pid = vllm.pids["api"]

    assert listening.is_listening(pid, vllm.ports["api"])
    assert not listening.is_listening(pid, 1)


def test_the_program_that_started_an_engine_is_its_front_end() -> None:
    core = Fake("core", ("VLLM::EngineCore",), (Fake("worker", ("VLLM::Worker_TP0",)),))
    own = Fake("own", ("python3", "-c", "serve()", "serve", "my-model"), (core,), listen=True)
    with tree(Fake("shell", ("bash", "run.sh"), (own,))) as running:
        for key in ("own", "core", "worker"):
            target = find_target(running.pids[key])
            assert target.root_pid == running.pids["own"]
            assert roles(target, running)["own"] == "APIServer"
            assert target.ports == (running.ports["own"],)
            assert target.model == "my-model"
        found = {target.root_pid for target in find_servers()}
        assert running.pids["own"] in found
        assert running.pids["core"] not in found


def test_several_fronts_and_engines_of_ones_own_program_are_one_server() -> None:
    titles = ("VLLM::APIServer_0", "VLLM::APIServer_1", "VLLM::EngineCore_DP0", "VLLM::EngineCore_DP1")
    parts = tuple(Fake(title, (title,)) for title in titles)
    own = Fake("own", ("python3", "-c", "serve()", "serve", "my-model"), parts, listen=True)
    with tree(Fake("shell", ("bash", "run.sh"), (own,))) as running:
        for key in ("shell", "own", *titles):
            assert find_target(running.pids[key]).root_pid == running.pids["own"]


def test_a_process_that_proc_hides_is_not_said_to_be_gone() -> None:
    needs_unshare("--mount")
    look = "print(procfs.is_hidden(1), procfs.is_hidden(4194305))"
    as_nobody = f"import os; from llmtop import procfs; os.setgroups([]); os.setgid(65534); os.setuid(65534); {look}"
    mounted = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    looked = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-c", as_nobody],
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount:" in looked.stderr:
        pytest.skip("this machine does not let root mount /proc anew")

    assert (looked.stdout, looked.stderr) == ("True False\n", "")


MAIN = "import sys; from vllm.entrypoints.cli.main import main; sys.argv[0] = 'vllm'; sys.exit(main())"
CORE = Fake("core", ("VLLM::EngineCore",), name="VLLM::EngineCor")
FLAGS = "model: /models/m\nserved-model-name: nice\nport: 8231\nmax-num-seqs: 8\nenforce-eager: true\n"


@pytest.mark.parametrize("children", [(), (CORE,)], ids=["starting", "running"])
def test_a_program_on_the_command_line_that_is_vllm_s_front(children: tuple[Fake, ...]) -> None:
    front = Fake(
        "api", ("/usr/bin/python3", "-c", MAIN, "serve", "/models/m", "--max-num-seqs", "8"), children=children
    )
    with tree(front) as running:
        target = find_target(running.pids["api"])
    assert (target.kind, target.root_pid, target.model) == ("vllm", running.pids["api"], "/models/m")
    assert target.facts["told.max_running"] == 8


def test_a_program_that_only_speaks_of_vllm_is_none() -> None:
    with tree(
        Fake("tool", ("/usr/bin/python3", "-c", "import vllm.entrypoints.cli.main", "bench", "serve-all"))
    ) as running:
        assert find_target(running.pids["tool"]).kind == "process"


@pytest.mark.parametrize(
    "wrapper", [("uv", "run", "vllm"), ("/usr/bin/python3", "/opt/conda/bin/conda", "run", "vllm")]
)
@pytest.mark.parametrize("config", [("--config", "flags.yaml"), ("--config=flags.yaml",)])
def test_a_file_of_flags_below_a_wrapper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapper: tuple[str, ...], config: tuple[str, ...]
) -> None:
    """Its model, port and settings count as if they stood on the command line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flags.yaml").write_text(FLAGS)
    front = Fake("api", ("/venv/bin/python", "/venv/bin/vllm", "serve", *config), children=(CORE,))
    with tree(Fake("wrapper", (*wrapper, "serve", *config), children=(front,))) as running:
        target = find_target(running.pids["wrapper"])
        assert told_port(target) == 8231
    assert (target.root_pid, target.model) == (running.pids["api"], "nice")
    assert target.facts["model_path"] == "/models/m"
    assert (target.facts["told.max_running"], target.facts["told.cuda_graphs"]) == (8, "off")
