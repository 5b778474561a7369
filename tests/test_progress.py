"""What is told while a run goes: the lines, counted by hand."""

from __future__ import annotations

import io

from agentloop.progress import Plain, Tally, counted


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
