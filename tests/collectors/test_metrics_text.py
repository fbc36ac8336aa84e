from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from llmtop.collectors import metrics_text
from llmtop.collectors.metrics_text import MAX_LINES, MAX_REMEMBERED, TextReader, key, names


def read_one(text: str, name: str) -> list[tuple[dict[str, str], float | None]]:
    exposition = TextReader({key(name)}).read(text)
    return [(dict(sample.labels), sample.value) for sample in exposition.samples.get(key(name), ())]


def test_a_name_is_found_under_all_its_spellings() -> None:
    for spelling in ("vllm:prompt_tokens_total", "vllm_prompt_tokens_total", "vllm:prompt_tokens"):
        assert read_one(f'{spelling}{{engine="0"}} 3\n', "vllm_prompt_tokens") == [({"engine": "0"}, 3.0)]


def test_values_timestamps_and_exponents() -> None:
    text = 'a{x="1"} 1.5e+03\na{x="2"} 7 1700000000000\na 5\n'

    assert read_one(text, "a") == [({"x": "1"}, 1500.0), ({"x": "2"}, 7.0), ({}, 5.0)]


def test_an_exemplar_is_neither_the_value_nor_a_label() -> None:
    behind = ' # {trace_id="a} 9",b="# {"} 1.0 1700000000.1'
    text = f'a{{x="1"}} 150{behind}\na{{x="q\\" # {{}} 8"}} 7 1700000000{behind}\na 5{behind}\n'

    read = read_one(text, "a")

    assert read == [({"x": "1"}, 150.0), ({"x": 'q" # {} 8'}, 7.0), ({}, 5.0)]
    reader = TextReader(["a"])
    for value in (150, 151):
        [sample] = reader.read(f'a{{x="1"}} {value}{behind}\n').samples["a"]
        assert sample.value == value


def test_nan_and_infinity_are_no_values() -> None:
    assert read_one('a{x="1"} NaN\na{x="2"} +Inf\n', "a") == [({"x": "1"}, None), ({"x": "2"}, None)]


def test_labels_with_braces_commas_quotes_and_escapes() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("g", "help", ["path"], registry=registry)
    hostile = ["a}b{c", "x,y=z", 'quote " back \\ slash', "line\nbreak", "", "} 5"]
    for i, value in enumerate(hostile):
        gauge.labels(path=value).set(i)

    read = read_one(generate_latest(registry).decode(), "g")

    assert [labels["path"] for labels, _ in read] == [value.replace("\n", "␊") for value in hostile]
    assert [value for _, value in read] == list(range(len(hostile)))


def test_control_characters_in_labels_are_replaced() -> None:
    assert read_one('a{model="\x1b[2Jevil"} 1\n', "a") == [({"model": "␛[2Jevil"}, 1.0)]


def test_a_bad_line_costs_only_itself() -> None:
    exposition = TextReader({"a"}).read('a{x="1"} 1\na{x=broken 2\nnonsense\na one\na{x="2"} 2 3 4\na{x="3"} 3\n')

    assert [sample.value for sample in exposition.samples["a"]] == [1.0, 3.0]
    assert exposition.unreadable == 4


def test_values_change_from_scrape_to_scrape() -> None:
    reader = TextReader({"a"})

    values = [reader.read(f'a{{x="1"}} {i}\n').samples["a"][0].value for i in range(3)]

    assert values == [0.0, 1.0, 2.0]


def test_ever_new_labels_do_not_fill_memory() -> None:
    reader = TextReader({"wanted"})
    for start in (0, MAX_REMEMBERED):
        reader.read("".join(f'a{{request="{start + i}"}} 1\n' for i in range(MAX_REMEMBERED + 1)))

    assert len(reader._series) <= MAX_REMEMBERED + 1


def test_first_names_say_what_a_page_is() -> None:
    assert names('# HELP x\nx 1\ny{a="1"} 2\nx 3\n') == ("x", "y")


label_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(deadline=None)  # a loaded machine is no failure
@given(st.lists(st.tuples(label_values, st.floats(allow_nan=False, allow_infinity=False)), max_size=5))
def test_reads_back_what_prometheus_client_writes(samples: list[tuple[str, float]]) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("g", "help", ["label"], registry=registry)
    counter = Counter("c", "help", registry=registry)
    counter.inc(3)
    expected = dict(samples)
    for label, value in expected.items():
        gauge.labels(label=label).set(value)

    text = generate_latest(registry).decode()

    assert [value for _, value in read_one(text, "g")] == list(expected.values())
    assert read_one(text, "c") == [({}, 3.0)]


@settings(deadline=None)  # a loaded machine is no failure
@given(st.text(max_size=300))
def test_no_text_makes_it_fail(text: str) -> None:
    reader = TextReader({"a", "b"})
    for prefix in ("", "a", 'a{x="', "a{x=", "b 1 "):
        exposition = reader.read(prefix + text)
        assert all(
            sample.value is None or sample.value == sample.value for s in exposition.samples.values() for sample in s
        )


LINES = st.lists(
    st.sampled_from(
        [
            *(f'{name}{{l="{label}"}} {value}' for name in ("a", "other") for label in ("x", "y") for value in (1, 2)),
            *("a 5", "other 6", "# TYPE a counter", "# TYPE other gauge", "", 'a{l="x"} no number', "other{"),
        ]
    ),
    max_size=12,
)


@given(st.lists(LINES, max_size=6))
def test_a_page_is_read_alike_whatever_came_before(pages: list[list[str]]) -> None:
    reader = TextReader({key("a")})
    for lines in pages:
        read, afresh = reader.read("\n".join(lines)), TextReader({key("a")}).read("\n".join(lines))
        assert (read.samples, read.declared) == (afresh.samples, afresh.declared)


PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 4.0
# TYPE other_total counter
other_total 7

vllm:prompt_tokens_total 12 1700000000
"""


def values_of(reader: TextReader, page: str) -> dict[str, list[float | None]]:
    return {name: [one.value for one in several] for name, several in reader.read(page).samples.items()}


def lines_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that are taken apart from now on."""
    taken: list[str] = []
    split = metrics_text._split
    monkeypatch.setattr(metrics_text, "_split", lambda line: taken.append(line) or split(line))  # type: ignore[func-returns-value]
    return taken


def test_of_a_page_with_the_same_lines_only_the_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TextReader(("vllm_num_requests_running", "vllm_prompt_tokens"))
    first = reader.read(PAGE)
    taken = lines_read(monkeypatch)

    second = reader.read(PAGE.replace("} 4.0", "} 5.0").replace("other_total 7", "other_total 8.5"))

    assert taken == []
    running, prompts = second.samples["vllm_num_requests_running"], second.samples["vllm_prompt_tokens"]
    assert [one.value for one in (*running, *prompts)] == [3.0, 5.0, 12.0]
    assert running[0] is first.samples["vllm_num_requests_running"][0]  # it says what it said
    assert second.declared == first.declared == {"vllm_num_requests_running", "other"}


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ('{engine="1"}', '{engine="2"}', {"running": [3.0, 4.0], "prompt": [12.0]}),
        ("other_total 7", "vllm:prompt_tokens_total 7", {"running": [3.0, 4.0], "prompt": [7.0, 12.0]}),
        ("\n\n", "\nvllm:prompt_tokens_total 9\n", {"running": [3.0, 4.0], "prompt": [9.0, 12.0]}),
        ("other_total 7\n", "", {"running": [3.0, 4.0], "prompt": [12.0]}),
        ("} 4.0", "} many", {"running": [3.0], "prompt": [12.0]}),
        ("prompt_tokens_total 12", "prompt_tokens_totals 12", {"running": [3.0, 4.0]}),
    ],
)
def test_a_page_with_other_lines_is_read_as_if_it_were_the_first(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str, values: dict[str, list[float]]
) -> None:
    reader = TextReader(("vllm_num_requests_running", "vllm_prompt_tokens"))
    assert values_of(reader, PAGE) == {"vllm_num_requests_running": [3.0, 4.0], "vllm_prompt_tokens": [12.0]}
    taken = lines_read(monkeypatch)
    long = {"running": "vllm_num_requests_running", "prompt": "vllm_prompt_tokens"}
    assert values_of(reader, PAGE.replace(old, new)) == {long[name]: told for name, told in values.items()}
    assert taken


def test_of_a_page_without_end_the_first_lines_are_read() -> None:
    reader = TextReader({"a"})
    text = "a 1\n" + 'b{c="d"} 1\n' * MAX_LINES
    for _ in range(2):  # anew, and as the page before
        found = reader.read(text)
        assert found.left_out == 2
        assert [sample.value for sample in found.samples["a"]] == [1.0]
