"""Series, traces and text at the model's border."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmtop import ids
from llmtop.model import Metric, Missing, Origin, Series, Trace, Track, TrackId, TrackKind, Unknown, What
from llmtop.text import clean, redact, shorten

LOAD = Metric("test.load", "%")


def test_between_is_inclusive_and_shares_columns() -> None:
    series = Series.of(ids.HOST, LOAD, "fake", [(10, 1.0), (20, None), (30, 3.0)])
    part = series.between(10, 20)
    assert list(part) == [(10, 1.0), (20, None)]
    assert part._times is series._times
    assert len(series.between(31, 99)) == 0
    assert series.between(31, 99).last is None


def test_a_sample_without_a_value_is_none_or_left_out() -> None:
    series = Series.of(ids.HOST, LOAD, "fake", [(10, 1.0), (20, None), (30, 3.0)])
    assert list(series) == [(10, 1.0), (20, None), (30, 3.0)]
    assert list(series.samples) == [1.0, None, 3.0]
    assert list(series.known) == [(10, 1.0), (30, 3.0)]
    whole = series.between(30, 30)
    assert list(whole) == list(whole.known) == [(30, 3.0)]
    assert list(whole.samples) == [3.0]


def test_the_newest_samples_are_at_most_as_many_as_there_are() -> None:
    series = Series.of(ids.HOST, LOAD, "fake", [(10, 1.0), (20, None), (30, 3.0)]).between(20, 30)
    assert [list(series.newest(count)) for count in (0, 1, 9)] == [[], [(30, 3.0)], [(20, None), (30, 3.0)]]


def test_the_value_at_a_moment_is_the_newest_one_by_then() -> None:
    series = Series.of(ids.HOST, LOAD, "fake", [(10, 1.0), (20, None), (30, 3.0)])
    assert [series.at(t) for t in (9, 10, 19, 20, 29, 30, 99)] == [None, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0]
    assert series.between(20, 30).at(20) is None


def test_a_trace_is_described_in_one_line_however_much_it_holds() -> None:
    series = Series.of(ids.HOST, LOAD, "fake", [(t, 1.0) for t in range(10_000)])
    trace = Trace(Origin("live"), 0, 9_999, series={(ids.HOST, LOAD.name): series})
    assert repr(trace) == "<Trace live 0..9999 ns: 1 series>"
    assert len(repr(series)) < 200


def test_tracks_are_gone_through_once_however_many_kinds_are_asked_for() -> None:
    class Noted(dict[TrackId, Track]):
        looks = 0

        def values(self) -> Any:
            self.looks += 1
            return super().values()

    made = (
        Track(ids.gpu(1), TrackKind.GPU, "b"),
        Track(ids.SELF, TrackKind.SELF, "me"),
        Track(ids.gpu(0), TrackKind.GPU, "a"),
    )
    tracks = Noted({one.id: one for one in made})
    trace = Trace(Origin("live"), tracks=tracks)
    assert [one.name for one in trace.tracks_of(TrackKind.GPU)] == ["b", "a"]
    assert [[one.name for one in trace.tracks_of(kind)] for kind in (TrackKind.SELF, TrackKind.THREAD)] == [["me"], []]
    assert tracks.looks == 1


def test_unknown_reads_as_a_sentence_with_its_remedy() -> None:
    assert str(Unknown("not collected", "ncu --section Occupancy")) == "not collected (ncu --section Occupancy)"
    assert str(Unknown("not collected")) == "not collected"


def test_first_listed_reason_wins() -> None:
    trace = Trace(
        Origin("live"), missing=(Missing(What("gpu:0"), Unknown("lost")), Missing(What("nvml"), Unknown("no driver")))
    )
    assert trace.why_missing(What("gpu:0/dram"), What("gpu:0"), What("nvml")) == Unknown("lost")
    assert trace.why_missing(What("server")) is None


@given(st.text())
def test_clean_text_has_nothing_that_steers_or_hides(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) == len(text)
    assert not [c for c in cleaned if unicodedata.category(c) in {"Cc", "Cs"}]
    assert not {"\x1b", "\x9b", "\u202e", "\u200b", "\ufeff"} & set(cleaned)
    cleaned.encode()
    assert clean(cleaned) == cleaned


@given(st.text(max_size=200), st.integers(0, 80))
def test_shortened_text_fits_and_keeps_both_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert len(short) <= width or len(text) <= width
    if 3 <= width < len(text):
        assert text.startswith(short.split("…")[0][:1])
        assert text[-1] == short[-1]


def test_secrets_are_hidden_in_all_their_forms() -> None:
    line = "python -m x --api-key=sk1 --hf-token sk2 OPENAI_API_KEY=sk3 PASSWORD=sk4 --port 1"
    hidden = redact(line)
    assert not [secret for secret in ("sk1", "sk2", "sk3", "sk4") if secret in hidden]
    assert "--port 1" in hidden
