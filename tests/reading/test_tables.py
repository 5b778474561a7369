"""The report as text: what must not be missed is said in words, within 100 columns."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console

from agentloop.reader import open_run
from agentloop.report import report
from agentloop.tables import render

from .conftest import Made, manifest

if TYPE_CHECKING:
    from .conftest import Run


def text(run: Run, *, short: bool = False) -> str:
    screen = Console(file=StringIO(), width=100)
    with open_run(run.directory) as reading:
        render(report(reading), screen, short=short)
    assert isinstance(screen.file, StringIO)
    said = screen.file.getvalue()
    commands = "agentloop "  # to be copied whole, so never wrapped
    assert max(len(line) for line in said.splitlines() if commands not in line) <= 100
    return " ".join(said.split())


def test_what_does_not_fit_goes_on_under_its_own_column(run: Run) -> None:
    run.problem("A")
    run.attempt("A", "direct", [Made("a", "passed", "passed")], stop="passed")
    screen = Console(file=StringIO(), width=40)
    with open_run(run.directory) as reading:
        data = report(reading)
    data["experiment"]["environment"]["isolation"] = "docker: no network, read-only root, own uid"
    render(data, screen)
    assert isinstance(screen.file, StringIO)
    assert "\nsandbox   docker: no network, read-only\n          root, own uid\n" in screen.file.getvalue()


def test_an_oracle_is_marked_in_every_table_and_warned_of(run: Run) -> None:
    run.store.set_meta("manifest", manifest(peek="oracle_peek"))
    run.problem("A")
    run.attempt("A", "peek", [Made("a", "passed", "passed")], stop="passed")
    assert text(run).count("peek ORACLE") == 4
    assert "peek with m: ORACLE, it sees hidden verdicts" in text(run)
    assert "peek ORACLE" in text(run, short=True)


def test_what_is_not_done_is_said(run: Run) -> None:
    run.problem("A")
    run.problem("B")
    run.attempt("A", "direct", [Made("a", "passed", "passed")], stop="passed")
    run.store.add_fault(run.attempt("B", "direct", [], status="running"), "sandbox_error", "the engine died")
    said = text(run)
    assert "1 of 2 attempts done, 1 ended by a fault" in said
    assert "direct with m: 1 ended by a fault, 0 unfinished of 2: in no rate" in said


def test_an_attempt_that_the_user_stopped_is_unfinished_not_a_fault(run: Run) -> None:
    run.problem("A")
    attempt = run.attempt("A", "direct", [], status="running")
    run.store.add_fault(attempt, "model_error", "503")
    run.store.add_fault(attempt, "cancelled", "stopped by the user")
    assert "direct with m: 0 ended by a fault, 1 unfinished of 1" in text(run)


def test_a_run_stopped_before_its_first_end_has_no_empty_tables(run: Run) -> None:
    run.problem("A")
    run.attempt("A", "direct", [], status="running")
    for short in (True, False):
        said = text(run, short=short)
        assert "model m no attempt is done yet" in said
        assert "paid in all: nothing" in said
        assert "strategy" not in said
        assert "first, final" not in said


def test_unequal_rows_and_unknown_prices_are_said(run: Run) -> None:
    run.problem("A")
    run.problem("B")
    run.attempt("A", "direct", [Made("a", "passed", "passed")], stop="passed")
    run.attempt("A", "feedback_loop", [Made("a", "passed", "passed")], stop="passed")
    run.attempt("B", "feedback_loop", [Made("a", "passed", "passed")], stop="passed")
    said = text(run)
    assert "rows of m rest on different numbers of attempts" in said
    assert "no price known" in said
    assert "$" not in said


def test_verdicts_of_the_programs_own_process_are_said(run: Run) -> None:
    run.problem("A")
    run.attempt("A", "direct", [Made("a", "passed", "passed")], stop="passed", in_process=True)
    assert "1 hidden verdicts rest on tests that share the program's process" in text(run)
