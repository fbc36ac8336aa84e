"""The page of a recording: pictures that are whole, of what the recording has, and hostile text that stays text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from llmtop.analysis.views import Lane, LaneMark, Lanes, NodeKind, StackNode, StackTree
from llmtop.cli.incident_svg import flame_svg, lanes_svg
from llmtop.cli.report import report
from llmtop.model import NS_PER_S, RECORDING, Mark, MarkKind, Origin, Severity, Stack, Trace
from tests.live_traces import NO_GPU, NOTHING, TARGET, Scene, live_trace, probed

HOSTILE = "</title><script>alert(1)</script><img src=http://evil/x onerror=1>\"'&"
SCENES = {"two": Scene(gpus=2), "no-gpu": NO_GPU, "nothing": NOTHING, "hostile": Scene(hostile=HOSTILE)}


def recorded(scene: Scene) -> Trace:
    trace = probed(live_trace(scene))
    mark = Mark(trace.end_ns - NS_PER_S, MarkKind.PROCESS, "host", HOSTILE, Severity.ERROR)
    return replace(trace, origin=Origin(RECORDING, "incident.llmtop"), marks=(*trace.marks, mark))


def page(trace: Trace) -> str:
    return "".join(report(trace, "html"))


def pictures(text: str) -> dict[str, ElementTree.Element]:
    found = [ElementTree.fromstring(one) for one in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    return {one.attrib["aria-label"]: one for one in found}


class _Tags(HTMLParser):
    """All tags of a page, and what would load something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loads += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "onerror", "srcset")]


def test_it_has_a_headline_findings_rooflines_with_trails_lanes_and_a_flame() -> None:
    text = page(recorded(Scene(gpus=2)))
    assert text.index("class='verdict") < text.index("Roofline of H100") < text.index("On one time axis")
    assert text.index("On one time axis") < text.index("Where its threads were") < text.index("<h2>Series")
    found = pictures(text)
    assert set(found) == {"Roofline", "Lanes", "Flame"}
    dots = [one for one in found["Roofline"].iter() if one.attrib.get("class") == "dot"]
    assert [dot.attrib["r"] for dot in dots[-2:]] == ["3", "9"]
    assert "at the end: " in (dots[-1].findtext("title") or "")
    assert re.match(r"\d+ s before: ", dots[0].findtext("title") or "")
    assert len(dots) > 10


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_it_loads_nothing_and_hostile_text_stays_text(scene: Scene) -> None:
    text = page(recorded(scene))
    tags = _Tags()
    tags.feed(text)
    assert tags.loads == []
    assert tags.tags.isdisjoint({"img", "iframe", "link", "object", "embed"})
    assert text.count("<script>") == 1
    pictures(text)


def test_the_roofline_is_that_of_the_precision_that_the_server_computes_in() -> None:
    trace = recorded(Scene())
    assert "precision not known" in page(trace)
    assert "precision not known" not in page(replace(trace, target=TARGET))


def test_what_is_not_there_says_why() -> None:
    text = page(recorded(NO_GPU))
    assert "Roofline" not in pictures(text)
    head = text.index("<h2>Roofline</h2>")
    assert "no NVIDIA driver library was found" in text[head : head + 100]


def test_events_stand_below_the_lanes_the_newest_where_there_are_many() -> None:
    trace = recorded(Scene())
    assert "<b class='severity'>1 s before</b> &lt;/title&gt;&lt;script&gt;" in page(trace)
    marks = [
        Mark(trace.end_ns - s * NS_PER_S, MarkKind.XID, "gpu:0", f"XID 1{s:02}", Severity.ERROR) for s in range(30)
    ]
    text = page(replace(trace, marks=tuple(marks)))
    below = text[text.index("the last 20 of 30 events:") : text.index("Where its threads were")]
    assert re.findall(r"<p class='event error'><b class='severity'>([^<]*)</b>[^<]*XID (\d+)</p>", below) == [
        *((f"{s} s before", f"1{s:02}") for s in range(19, 0, -1)),
        ("the end", "100"),
    ]


LANES = Lanes(
    0,
    10 * NS_PER_S,
    (
        Lane("SM", "%", "GPM", tuple((s * NS_PER_S, None if s == 5 else 10.0 * s) for s in range(11)), high=100.0),
        Lane(HOSTILE, "%", HOSTILE, ((0, None),)),
        Lane("flat", "1", "test", ((0, 0.0), (NS_PER_S, 0.0))),
    ),
    (LaneMark(5 * NS_PER_S, HOSTILE, "error"),),
)


def test_lanes_stand_where_their_time_is_and_have_gaps() -> None:
    picture = ElementTree.fromstring("".join(lanes_svg(LANES)))
    lane = next(one for one in picture.iter() if one.attrib.get("class") == "lane")
    steps = re.findall(r"([ML])([\d.]+) ([\d.]+)", lane.attrib["d"])
    assert [step for step, _, _ in steps].count("M") == 2
    assert (steps[0][1:], steps[-1][1:]) == (("150.0", "34.0"), ("764.0", "4.0"))
    assert picture.find(".//path[@class='mark-error']").attrib["d"].startswith("M457.0 ")  # type: ignore[union-attr]
    texts = [one.text for one in picture.iter("text")]
    assert {"SM", "100 %", "–", "10 s before", "5 s before", "the end"} <= set(texts)


def test_frames_are_as_wide_as_their_share_below_what_calls_them() -> None:
    leaf = StackNode("leaf", NodeKind.FRAME, 25.0, 25.0)
    waiting = StackNode(HOSTILE, NodeKind.WAITING, 75.0, 75.0)
    root = StackNode("all", NodeKind.ROOT, 100.0, 0.0, (waiting, leaf))
    picture = ElementTree.fromstring("".join(flame_svg(StackTree(root, "ns"))))
    rects = [(float(one.attrib["x"]), float(one.attrib["width"]), one.attrib["y"]) for one in picture.iter("rect")]
    texts = {one.text or "": float(one.attrib["x"]) for one in picture.iter("text")}
    ends = [x + 6.65 * len(name) for name, x in sorted(texts.items(), key=lambda item: item[1]) if name != "all"]
    assert len(ends) == 2
    assert all(end <= edge for end, edge in zip(ends, (644.5, 859.5), strict=True)), "names stay within their frames"
    assert sorted(rects) == [(0.0, 644.5, "19"), (0.0, 859.5, "0"), (645.0, 214.5, "19")]


def test_a_stack_of_a_thousand_frames_and_one_without_weight_are_drawn() -> None:
    node = StackNode("last", NodeKind.FRAME, 1.0, 1.0)
    for depth in range(1_000):
        node = StackNode(f"f{depth}", NodeKind.FRAME, 1.0, 0.0, (node,))
    assert len(list(ElementTree.fromstring("".join(flame_svg(StackTree(node, "ns")))).iter("rect"))) == 48
    empty = StackTree(StackNode("all", NodeKind.ROOT, 0.0, 0.0), "ns")
    assert list(ElementTree.fromstring("".join(flame_svg(empty))).iter("rect")) == []
    alone = Trace(Origin(RECORDING, "x"), stacks=(Stack((HOSTILE,), 1.0, "samples"),), end_ns=NS_PER_S)
    assert "Where its threads were" in page(alone)
