"""The parts of the live screen that need no screen: where it stands in time, and what is where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop.model import NS_PER_S, Trace
from llmtop.tui.panes.live import LIVE_VIEWS
from llmtop.tui.panes.view import Context
from llmtop.tui.render.look import ASCII, UNICODE
from llmtop.tui.screens.live_layout import (
    Arrangement,
    Focus,
    Form,
    Room,
    arrangement,
    folded_places,
    form_of,
    places_of_use,
    shown_panes,
)
from llmtop.tui.screens.live_state import LiveRates, live_state
from llmtop.tui.screens.live_time import TimeCursor
from tests.analysis.verdict_scenes import SITUATIONS
from tests.live_traces import NO_GPU, TARGET, Scene, live_trace, probed

TRACE = live_trace()
SERVER = Context(TARGET)


# -- time --------------------------------------------------------------------------------------------------------


def test_a_cursor_steps_within_what_is_recorded() -> None:
    cursor = TimeCursor()
    assert cursor.shown(TRACE) is TRACE
    cursor.step(-2, TRACE)
    assert cursor.at_ns == TRACE.end_ns - 10 * NS_PER_S
    assert cursor.shown(TRACE).end_ns == cursor.at_ns
    cursor.step(-100, TRACE)
    assert cursor.at_ns == TRACE.start_ns
    cursor.step(100, TRACE)
    assert cursor.at_ns is None


def test_a_cursor_that_the_window_leaves_behind_goes_with_its_start() -> None:
    cursor = TimeCursor()
    cursor.go_to(TRACE.start_ns + NS_PER_S, TRACE)
    later = replace(TRACE, start_ns=TRACE.start_ns + 30 * NS_PER_S)
    assert cursor.shown(later).end_ns == later.start_ns


def test_what_is_held_stays_until_it_is_let_go() -> None:
    cursor, later = TimeCursor(), live_trace(ticks=95)
    cursor.toggle_hold(TRACE)
    assert cursor.newest(later) is TRACE
    assert cursor.said(TRACE, "<") == "paused (space: go on)"
    cursor.toggle_hold(TRACE)
    assert cursor.newest(later) is later


def test_going_back_to_now_says_whether_there_was_anything_to_leave() -> None:
    cursor = TimeCursor()
    assert not cursor.back_to_now()
    cursor.step(-1, TRACE)
    assert cursor.said(TRACE, "<") == "< 5 s ago (Esc: now)"
    cursor.toggle_hold(TRACE)
    assert cursor.back_to_now()
    assert cursor.said(TRACE, "<") == ""
    assert not cursor.is_held


# -- what is where -----------------------------------------------------------------------------------------------


def of_use(watched: Context, width: int, height: int, trace: Trace = TRACE, gpus: int = 1) -> list[int]:
    return sorted(places_of_use(watched, Room(width, height, gpus), trace))


def test_each_pane_has_one_entry_and_one_digit() -> None:
    numbers = [place.number for _, _, place in LIVE_VIEWS]
    assert sorted(numbers) == list(range(1, len(LIVE_VIEWS) + 1))
    for _, kind, place in LIVE_VIEWS:
        made = kind().within(SERVER)
        assert (made.number, made.title) == (place.number, place.title or kind.title)


def test_panes_have_a_place_when_there_is_room_and_something_to_show() -> None:
    assert of_use(SERVER, 120, 40) == [1, 2, 3, 4, 5, 6]
    assert of_use(SERVER, 80, 24) == [1, 2, 3, 4, 6]
    assert of_use(Context(None), 120, 40) == [1, 3, 6]
    assert of_use(SERVER, 80, 24, gpus=8) == [1, 2, 3, 4]


def test_what_had_its_place_keeps_it_while_probes_are_away() -> None:
    assert 8 not in of_use(SERVER, 200, 60)
    assert 8 in of_use(SERVER, 200, 60, probed(TRACE))
    assert 8 in places_of_use(SERVER, Room(200, 60, 1), TRACE, frozenset({8}))


def test_without_a_gpu_its_panes_fold_into_a_line() -> None:
    assert of_use(SERVER, 120, 40, live_trace(NO_GPU), gpus=0) == [2, 4, 5, 6]
    assert folded_places(SERVER, live_trace(NO_GPU)) == {1, 3}
    assert of_use(Context(None), 120, 40, live_trace(NO_GPU), gpus=0) == [1, 3, 6]
    nothing_told = replace(live_trace(NO_GPU), missing=())
    assert of_use(SERVER, 120, 40, nothing_told, gpus=0) == [1, 2, 3, 4, 5, 6]


def test_many_gpus_get_more_room_where_there_are_rows() -> None:
    assert Room(120, 40, 8).classes()["-many-gpus"]
    assert not Room(120, 40, 8).classes()["-crowd"]
    assert Room(120, 40, 16).classes()["-crowd"]
    assert Room(80, 24, 8).classes()["-cramped"]
    assert [name for name, is_on in Room(80, 24, 1).classes().items() if is_on] == ["-roomy"]


@pytest.mark.parametrize(
    ("focus", "has_table", "form"),
    [
        (Focus(4), True, Form.PANES),
        (Focus(4, is_zoomed=True), True, Form.TABLE),
        (Focus(4, is_zoomed=True), False, Form.PANES),
        (Focus(4, is_zoomed=True, is_log_open=True), True, Form.EVENTS),
    ],
)
def test_what_takes_the_room_of_the_panes(focus: Focus, has_table: bool, form: Form) -> None:
    assert form_of(focus, has_table=has_table) is form


def test_a_pane_alone_and_rows_below_it() -> None:
    panes = frozenset({1, 2, 3})

    def shown(focus: Focus, form: Form, *, is_small: bool = False, keeps_pane: bool = False) -> set[int]:
        return set(shown_panes(focus, form, panes, is_small=is_small, keeps_pane=keeps_pane))

    assert shown(Focus(2), Form.PANES) == {1, 2, 3}
    assert shown(Focus(2), Form.PANES, is_small=True) == {2}
    assert shown(Focus(2, is_zoomed=True), Form.PANES) == {2}
    assert shown(Focus(2, is_zoomed=True), Form.TABLE) == set()
    assert shown(Focus(2, is_zoomed=True), Form.TABLE, keeps_pane=True) == {2}
    assert shown(Focus(2), Form.EVENTS) == set()


PANES = frozenset({1, 2, 3})


@pytest.mark.parametrize(
    ("focus", "number", "there"),
    [
        (Focus(1), 2, Focus(2)),
        (Focus(1, is_zoomed=True, is_heatmap=True), 2, Focus(2, is_zoomed=True)),
        (Focus(1, is_zoomed=True), 8, Focus(8, is_zoomed=True)),
        (Focus(1), 8, Focus(8, is_zoomed=True, is_lent=True)),
        (Focus(8, is_zoomed=True, is_lent=True), 2, Focus(2)),
        (Focus(8, is_zoomed=True, is_lent=True), 9, Focus(9, is_zoomed=True, is_lent=True)),
        (Focus(1, is_log_open=True), 2, Focus(2)),
    ],
)
def test_a_pane_takes_the_place_of_the_one_in_focus(focus: Focus, number: int, there: Focus) -> None:
    assert focus.on_pane(number, PANES) == there


def test_a_pane_that_the_screen_was_lent_to_keeps_it_when_it_is_zoomed() -> None:
    lent = Focus(8, is_zoomed=True, is_lent=True)
    assert lent.zoomed() == Focus(8, is_zoomed=True)
    assert Focus(2).zoomed() == Focus(2, is_zoomed=True)


def test_out_of_a_pane_alone_the_focus_is_on_one_that_has_a_place() -> None:
    assert Focus(2, is_zoomed=True, is_heatmap=True).among_others(PANES) == Focus(2)
    assert Focus(8, is_zoomed=True).among_others(PANES) == Focus(1)


def test_what_was_lent_is_given_back_once_the_pane_has_a_place() -> None:
    lent = Focus(8, is_zoomed=True, is_lent=True, is_log_open=True)
    assert lent.back_in_place(PANES) == lent
    assert lent.back_in_place(PANES | {8}) == Focus(8, is_log_open=True)
    assert Focus(2, is_zoomed=True).back_in_place(PANES) == Focus(2, is_zoomed=True)


LARGE, SMALL = Room(120, 40, 1), Room(50, 16, 1)


@pytest.mark.parametrize(
    ("focus", "room", "has_table", "keeps_pane", "laid"),
    [
        (Focus(2), LARGE, False, False, Arrangement(Focus(2), Form.PANES, PANES, True, False)),
        (Focus(2), SMALL, False, False, Arrangement(Focus(2), Form.PANES, frozenset({2}), False, False)),
        (Focus(7), LARGE, False, False, Arrangement(Focus(1), Form.PANES, PANES, True, False)),
        (Focus(7), SMALL, False, False, Arrangement(Focus(1), Form.PANES, frozenset({1}), False, False)),
        (
            Focus(7, is_zoomed=True),
            LARGE,
            False,
            False,
            Arrangement(Focus(7, is_zoomed=True), Form.PANES, frozenset({7}), False, False),
        ),
        (
            Focus(2, is_zoomed=True),
            LARGE,
            True,
            True,
            Arrangement(Focus(2, is_zoomed=True), Form.TABLE, frozenset({2}), False, True),
        ),
        (
            Focus(7, is_log_open=True),
            LARGE,
            False,
            True,
            Arrangement(Focus(7, is_log_open=True), Form.EVENTS, frozenset(), False, False),
        ),
    ],
)
def test_what_is_on_the_screen(focus: Focus, room: Room, has_table: bool, keeps_pane: bool, laid: Arrangement) -> None:
    assert arrangement(focus, room, PANES, frozenset({7}), has_table=has_table, keeps_pane=keeps_pane) == laid


def test_a_line_stands_for_folded_panes_only_where_there_are_some() -> None:
    assert not arrangement(Focus(2), LARGE, PANES, frozenset(), has_table=False, keeps_pane=False).has_folded


# -- how the server does -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (LiveRates(0.5, 0.5, 0.5), "2 Hz"),
        (LiveRates(0.5, 0.5, 0.54), "2 Hz"),
        (LiveRates(0.5, 0.5, 0.8), "2 Hz, drawn at 1.2 Hz"),
        (LiveRates(0.5, 0.8, 0.5), "1.2 of 2 Hz"),
        (LiveRates(0.5, 0.8, 1.0), "1.2 of 2 Hz, drawn at 1.0 Hz"),
    ],
)
def test_rates_are_told_beside_what_was_asked_for(rates: LiveRates, said: str) -> None:
    assert str(rates) == said


def test_of_a_server_its_end_is_said_before_its_faults_and_these_before_its_rates() -> None:
    rates = LiveRates(0.5, 0.5, 0.5)
    gone = SITUATIONS["engine killed"][0].trace()
    assert live_state(TRACE, None, rates, UNICODE) == ("● live 2 Hz", "good")
    assert live_state(TRACE, None, rates, ASCII) == ("* live 2 Hz", "good")
    assert live_state(TRACE, 0, rates, UNICODE) == ("exited with code 0", "warn")
    assert live_state(gone, 3, rates, UNICODE) == ("exited with code 3", "bad")
    said, role = live_state(gone, None, rates, UNICODE)
    assert said.startswith(f"{UNICODE.bad} ENGINE DEAD")
    assert role == "bad"


def test_system_calls_and_log_share_one_place() -> None:
    launched = Context(TARGET, object())  # type: ignore[arg-type]  # only whether there is one matters
    assert 7 in of_use(launched, 200, 60, live_trace(Scene()))
    assert 8 not in of_use(launched, 200, 60)
