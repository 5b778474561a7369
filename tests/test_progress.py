"""What is told while a run goes: the lines, counted by hand."""

from __future__ import annotations

import io
import re

import pytest

from agentloop.progress import Live, Plain, Tally, counted


def test_one_of_a_thing_is_no_plural() -> None:
    assert [counted(number, "programs") for number in (0, 1, 2)] == ["0 programs", "1 program", "2 programs"]
    stream = io.StringIO()
    with Plain(stream) as plain:
        plain.event("plan", total=1, reused=0, unit="programs")
        plain.event("judged", outcome="passed", suite="hidden")
    assert stream.getvalue().splitlines() == ["1 program", "1 of 1 programs done | hidden suite: passed 1"]
    tally = Tally()
    tally.take("plan", {"total": 0, "reused": 1, "unit": "programs"})  # of a pipe
    assert tally.line() == "1 program done"


def test_outcomes_after_going_on_are_said_to_be_those_of_the_new_ones() -> None:
    tally = Tally()
    tally.take("plan", {"total": 5, "reused": 3, "unit": "programs"})
    assert tally.line(over=True) == "3 of 5 programs done"
    tally.take("judged", {"outcome": "passed", "suite": "hidden"})
    assert tally.line(over=True) == "4 of 5 programs done | hidden suite of 1 new: passed 1"
    tally = Tally()
    tally.take("plan", {"total": 5, "reused": 3})
    tally.take("done", {"attempt": 4, "visible": "failed", "hidden": "passed"})
    told = "4 of 5 attempts done | visible suite of 1 new: failed 1 | hidden suite of 1 new: passed 1 of 1"
    assert tally.line(over=True) == told


def test_passed_comes_first_however_many_there_are() -> None:
    """Two counts that overtake each other must not change places while one reads them."""
    tally = Tally()
    tally.take("plan", {"total": 6, "reused": 0, "unit": "programs"})
    for outcome in ("timeout", "failed", "failed", "passed"):
        tally.take("judged", {"outcome": outcome, "suite": "hidden"})
    assert "hidden suite: passed 1, failed 2, timeout 1" in tally.line()


@pytest.mark.parametrize(("columns", "bar"), [(40, "━" * 10 + "─" * 30), (200, "━" * 15 + "─" * 45)])
def test_the_bar_is_one_line_of_any_terminal(
    columns: int, bar: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("COLUMNS", str(columns)), ("FORCE_COLOR", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    with Live() as live:
        live.event("plan", total=4, reused=1)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).split("\n")
    assert {line.strip("\r") for line in shown if "─" in line} == {bar}
