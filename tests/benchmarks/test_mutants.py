"""What code is changed into, and whether the tests of a small tree notice."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from benchmarks import mutants as mutants_module
from benchmarks.mutants import Tree, drawn
from benchmarks.mutations import functions, mutants


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("a < b", ["(a <= b)"]),
        ("a and not b", ["(a or not b)", "a and (b)"]),
        ("a + 3", ["(a - 3)", "a + 4", "a + 2"]),
        ("a * 0.5", ["(a / 0.5)", "a * 1.0", "a * 0.25"]),
        ("a - 1e-9", ["(a + 1e-09)"]),
        ("a * 1e-9", ["(a / 1e-09)", "a * 2e-09", "a * 5e-10"]),
        ("a is True", ["(a is not True)", "a is False"]),
        ("a[1:]", ["a[:]", "a[2:]", "a[0:]"]),
        ("f(a, b)", ["pass", "(f(b, a))"]),
        ("max(a, b)", ["pass"]),
        ("np.minimum(a, b)", ["pass"]),
        ("f(a, a)", ["pass"]),
        ("a.b = c", ["pass"]),
        ("a += b", ["a -= b", "pass"]),
        ("a: int | str = f'{b + 1}'", []),
        ("if TYPE_CHECKING: a = 1", []),
        ("f = dataclass(frozen=True)", []),
    ],
)
def test_what_a_line_may_become(was: str, becomes: list[str]) -> None:
    made = [(one.line, one.was, one.becomes, one.text) for one in mutants("x.py", f"# é\n{was}\n")]
    assert sorted(made) == sorted((2, was, text, f"# é\n{text}\n") for text in becomes)


def test_a_change_over_several_lines_is_told_in_one() -> None:
    (one,) = mutants("x.py", "if (\n    a\n    in b\n): pass\n")
    assert (one.line, one.was, one.becomes) == (2, "a in b", "(a not in b)")


def test_the_function_of_a_line() -> None:
    text = (
        "A = 1\nclass C:\n    x = 2\n    def f(self, y=3):\n        def g():\n            return 4\n        return g\n"
    )
    assert functions(text) == {5: ".C.f", 6: ".C.f.g", 7: ".C.f"}


@pytest.fixture
def small_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """One parser with two functions, of which the tests try one."""
    root = tmp_path / "root"
    (root / "parsers").mkdir(parents=True)
    (root / "tests/parsers").mkdir(parents=True)
    (root / "parsers/__init__.py").touch()
    (root / "conftest.py").write_text("import gc\n\n\ndef pytest_collection_finish():\n    gc.freeze()\n")
    (root / "parsers/x.py").write_text("def is_small(a):\n    return a < 3\n\n\ndef is_large(a):\n    return a > 30\n")
    (root / "tests/parsers/test_x.py").write_text(
        "import pytest\nfrom parsers.x import is_small\n\n\ndef test_three_is_not():\n    assert not is_small(3)\n"
        "\n\n@pytest.mark.kernel\ndef test_two_is():\n    assert is_small(2)\n"
    )
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    monkeypatch.setattr(mutants_module, "ROOT", root)
    monkeypatch.setattr(mutants_module, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(mutants_module, "TESTS", ("tests/parsers",))
    return Tree(tmp_path, with_kernel=False)


def test_a_change_that_a_test_notices_is_killed(small_tree: Tree) -> None:
    """The limit from above is tried, from below only with a kernel, and the other function never."""
    pytest.importorskip("coverage", reason="coverage is not installed: it is in the group dev")
    made = {one.becomes: one for one in drawn(small_tree.folder, "parsers/x.py", 99, 1)}
    assert len(made) == 6
    assert small_tree.fate(made["return (a <= 3)"]) == "killed"
    assert small_tree.fate(made["return a < 2"]) == "survived"
    assert small_tree.fate(made["return (a >= 30)"]) == "no test"
    assert (small_tree.folder / "parsers/x.py").read_text() == (mutants_module.ROOT / "parsers/x.py").read_text()


def test_in_forks_functions_and_constants_are_changed_as_well(small_tree: Tree) -> None:
    """And a test that fails there anyhow kills nobody."""
    pytest.importorskip("coverage", reason="coverage is not installed: it is in the group dev")
    parser, tests = small_tree.folder / "parsers/x.py", small_tree.folder / "tests/parsers/test_x.py"
    parser.write_text("MOST = 3\n\n\ndef is_small(a, more=0):\n    return a < MOST + more\n")
    tests.write_text(f"{tests.read_text()}\n\ndef test_nothing():\n    assert is_small(1) is None\n")
    file = "tests/parsers/test_x.py"
    small_tree.tests[f"{file}::test_nothing"] = {"seconds": 0.0, "runs": ["parsers/x.py:.is_small"]}
    made = {one.becomes: one for one in drawn(small_tree.folder, "parsers/x.py", 99, 1)}
    names = [f"{file}::test_nothing", f"{file}::test_three_is_not"]
    with small_tree.forking(["parsers"]) as forked:
        noticed = {one: forked.notice(mutant, names, 1.0) for one, mutant in made.items()}
    assert noticed == {
        "return (a <= MOST + more)": True,
        "return a < (MOST - more)": False,
        "MOST = 4": True,
        "MOST = 2": False,
        "def is_small(a, more=1):": True,
        "def is_small(a, more=-1):": False,
    }
    assert parser.read_text().startswith("MOST = 3")


@pytest.mark.parametrize(("was", "becomes", "noticed"), [("3 // 1", "3 // 0", True), ("3 // 0", "4 // 0", False)])
def test_in_forks_that_end_early_a_change_is_noticed_unless_they_do_so_without_it(
    small_tree: Tree, was: str, becomes: str, noticed: bool
) -> None:
    pytest.importorskip("coverage", reason="coverage is not installed: it is in the group dev")
    parser, name = small_tree.folder / "parsers/x.py", "tests/parsers/test_x.py::test_three_is_not"
    parser.write_text("def is_small(a):\n    return a < 3\n")
    with small_tree.forking(["parsers"]) as forked:
        parser.write_text(f"{parser.read_text()}\n\nMOST = {was}\n")
        made = {one.becomes: one for one in drawn(small_tree.folder, "parsers/x.py", 99, 1)}
        assert forked.notice(made[f"MOST = {becomes}"], [name], 1.0) is noticed
    assert forked.unfit == (set() if noticed else {name})


TEST_WITH_A_PROGRAM = """import subprocess
from pathlib import Path

from parsers.x import is_small


def test_a_program():
    program = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path({file!r}).write_text(str(program.pid))
    assert is_small(2)
    program.kill()
"""


def test_in_forks_what_a_test_has_started_ends_with_it(small_tree: Tree, tmp_path: Path) -> None:
    pytest.importorskip("coverage", reason="coverage is not installed: it is in the group dev")
    started = tmp_path / "pid"
    (small_tree.folder / "tests/parsers/test_x.py").write_text(TEST_WITH_A_PROGRAM.format(file=str(started)))
    made = {one.becomes: one for one in drawn(small_tree.folder, "parsers/x.py", 99, 1)}
    with small_tree.forking(["parsers"]) as forked:
        assert forked.notice(made["return a < 2"], ["tests/parsers/test_x.py::test_a_program"], 1.0)
    assert not Path("/proc", started.read_text()).exists()


KINDS = """from functools import lru_cache


class Kind:
    def __init__(self, most):
        self.most = most


KIND = Kind(3)


@lru_cache
def kind(of):
    return KIND, of + 1
"""
TEST_OF_KINDS = """from parsers.x import Kind, kind


def test_kind():
    found, of = kind(1)
    assert isinstance(found, Kind)
    assert (found.most, of) == (3, 2)
"""


def test_in_forks_classes_stay_those_that_tests_know(small_tree: Tree) -> None:
    """Or every test that asks for the class of something would fail there anyhow, and kill nobody."""
    pytest.importorskip("coverage", reason="coverage is not installed: it is in the group dev")
    (small_tree.folder / "parsers/x.py").write_text(KINDS)
    (small_tree.folder / "tests/parsers/test_x.py").write_text(TEST_OF_KINDS)
    name = "tests/parsers/test_x.py::test_kind"
    small_tree.tests = {name: {"seconds": 0.0, "runs": ["parsers/x.py:.kind"]}}
    with small_tree.forking(["parsers"]) as forked:
        noticed = {
            one.becomes for one in drawn(small_tree.folder, "parsers/x.py", 99, 1) if forked.notice(one, [name], 1.0)
        }
        assert forked.unfit == set()
    assert noticed == {
        "pass",
        "KIND = Kind(4)",
        "KIND = Kind(2)",
        "return KIND, of + 2",
        "return KIND, of + 0",
        "return KIND, (of - 1)",
    }


def test_a_limit_is_held_by_the_tests_of_who_imports_it(small_tree: Tree) -> None:
    """Be it a module that does, whose functions they run, or they themselves; and by the one that reads its file."""
    pytest.importorskip("coverage", reason="coverage is not installed: it is in the group dev")
    (small_tree.folder / "parsers/limits.py").write_text("MOST = 3\n")
    (small_tree.folder / "parsers/y.py").write_text("from llmtop.parsers.limits import MOST\n")
    imports = {"y": "from llmtop.parsers.y import is_most", "z": "from llmtop.parsers.limits import MOST", "w": ""}
    for name, text in imports.items():
        (small_tree.folder / f"tests/parsers/test_{name}.py").write_text(f"{text}\n")
        runs = [f"parsers/{name}.py:.is_most"]
        small_tree.tests[f"tests/parsers/test_{name}.py::test_three"] = {"seconds": 1.0, "runs": runs}
    (small_tree.folder / mutants_module.READERS).parent.mkdir()
    (small_tree.folder / mutants_module.READERS).touch()
    readers = [f"{mutants_module.READERS}::test_file[parsers/{name}.py]" for name in ("limits", "y")]
    small_tree.tests |= {reader: {"seconds": 0.5, "runs": []} for reader in readers}
    limit, *_ = drawn(small_tree.folder, "parsers/limits.py", 99, 1)
    holders = [f"tests/parsers/test_{name}.py::test_three" for name in "yz"]
    assert small_tree.tests_of(limit) == [readers[0], *holders]


def test_each_mutant_that_is_known_to_change_nothing_has_its_reason() -> None:
    known = tomllib.loads(mutants_module.KNOWN.read_text())["equivalent"]
    assert known
    assert all(one.keys() == {"path", "was", "becomes", "why"} and all(one.values()) for one in known)
