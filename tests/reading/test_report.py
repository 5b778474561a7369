"""Numbers of a report against values computed by hand from what was put in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agentloop.reader import open_run
from agentloop.report import report

from .conftest import Made, manifest

if TYPE_CHECKING:
    from .conftest import Run


def rows(run: Run) -> dict[str, dict[str, Any]]:
    with open_run(run.directory) as reading:
        return {row["strategy"]: row for row in report(reading)["rows"]}


def study(run: Run) -> None:
    """Three problems; C has no visible suite. Replies take 120 tokens unless said otherwise."""
    run.problem("A")
    run.problem("B")
    run.problem("C", visible=0)
    # A: repaired. B: right at first, spoilt by the "last" rule. C: one program, nothing routes.
    run.attempt("A", "feedback_loop", [
        Made("a0", "failed", "failed", passed=1),
        Made("a0", "failed", "failed", passed=1, told=True),
        Made("a2", "passed", "passed", told=True, prompt=300, completion=50),
    ], stop="passed")  # fmt: skip
    run.attempt("B", "feedback_loop", [
        Made("b0", "runtime_error", "passed"),
        Made(None, "no_code", "no_code", told=True, explained=40),
    ])  # fmt: skip
    run.attempt("C", "feedback_loop", [Made("c0", "failed", "failed")], stop="no_visible_suite")
    # The control shares first replies. A: its second draw passes visible and fails hidden.
    run.attempt(
        "A", "resample", [Made("a0", "failed", "failed", passed=1), Made("a9", "passed", "failed")], stop="passed"
    )
    run.attempt("B", "resample", [
        Made("b0", "runtime_error", "passed"),
        Made("b1", "failed", "failed", passed=1, prompt=500),
        Made("b2", "passed", "passed", prompt=500),
    ], stop="passed")  # fmt: skip
    run.attempt("C", "resample", [Made("c0", "failed", "failed")], stop="no_visible_suite")


def test_correctness_and_its_denominators(run: Run) -> None:
    study(run)
    row = rows(run)["feedback_loop"]
    assert row["attempts"] == {"begun": 3, "done": 3, "faults": 0, "unfinished": 0}
    assert row["visible"] == {"of": 2, "initial": 0, "final": 1, "any": 1}
    assert row["hidden"] == {
        "of": 3, "initial": 1, "final": 1, "any": 2, "gained": 1, "lost": 1, "in_process": 0, "ungraded": 0,
        "without_suite": 0,
    }  # fmt: skip
    assert row["visible_passed_hidden_failed"] == {"of": 1, "count": 0}
    assert rows(run)["resample"]["visible_passed_hidden_failed"] == {"of": 2, "count": 1}
    assert row["outcomes"]["visible"] == {
        "initial": {"passed": 0, "failed": 1, "runtime_error": 1, "no_visible_suite": 1},
        "final": {"passed": 1, "no_code": 1, "no_visible_suite": 1},
    }
    assert row["outcomes"]["hidden"]["final"] == {"passed": 1, "failed": 1, "no_code": 1}
    assert row["stop_reasons"] == {"budget": 1, "no_visible_suite": 1, "passed": 1}


def test_iterations_and_repeats(run: Run) -> None:
    study(run)
    row = rows(run)["feedback_loop"]
    assert row["iterations"] == {"total": 6, "mean": 2.0}
    assert row["repairs"] == {"of": 3, "same_program": 1, "same_failure": 1}
    assert row["redraws"]["of"] == 0
    assert rows(run)["resample"]["redraws"] == {"of": 3, "same_program": 0, "same_failure": 0}


def test_charged_is_what_is_used_and_paid_is_what_was_spent_once(run: Run) -> None:
    study(run)
    with open_run(run.directory) as reading:
        data = report(reading)
    loop, control = data["rows"]
    # A 120 + 120 + 350, B 120 + 40 + 120, C 120
    assert (loop["charged"]["tokens"], loop["charged"]["replies"]) == (990, 7)
    assert loop["charged_by_role"]["explainer"]["tokens"] == 40
    assert loop["charged_by_role"]["solver"]["completion_tokens"] == 5 * 20 + 50
    assert loop["paid"]["tokens"] == 990
    # The control: A 120 + 120, B 120 + 520 + 520, C 120, of which three first replies were paid by the loop already.
    assert control["charged"]["tokens"] == 1520
    assert control["paid"]["tokens"] == 1520 - 360
    assert data["paid"]["tokens"] == 990 + 1160
    assert loop["model_seconds"] == 7 * 0.25


def test_control_is_cut_at_the_tokens_of_each_attempt(run: Run) -> None:
    study(run)
    loop = rows(run)["feedback_loop"]["control_at_equal_tokens"]
    # A: 590 tokens buy both draws (visible passed, hidden failed). B: 280 buy the first only, which is right.
    # C: one draw, wrong, for the same 120 tokens.
    assert loop == {
        "strategy": "resample", "of": 3, "hidden": 1, "strategy_hidden": 1, "visible": 1, "tokens": 240 + 120 + 120,
        "strategy_tokens": 990, "ended_below": 0, "without_pair": 0,
    }  # fmt: skip
    assert rows(run)["resample"]["control_at_equal_tokens"] is None


def test_control_that_ends_below_its_tokens_is_said(run: Run) -> None:
    run.problem("A")
    run.problem("B")
    run.attempt("A", "feedback_loop", [Made("x", "failed", "failed"), Made("y", "failed", "failed", told=True)])
    run.attempt("B", "feedback_loop", [Made("x", "failed", "failed")])
    run.attempt("A", "resample", [Made("x", "failed", "failed")])
    found = rows(run)["feedback_loop"]["control_at_equal_tokens"]
    assert (found["of"], found["ended_below"], found["without_pair"]) == (1, 1, 1)


def test_control_submits_the_latest_of_the_best_by_visible_tests(run: Run) -> None:
    run.problem("A", visible=3)
    run.attempt("A", "direct", [Made("p", "failed", "failed"), Made("x", "failed", "failed", prompt=5000)])
    run.attempt("A", "resample", [
        Made("p", "failed", "failed", passed=2),
        Made("q", "failed", "passed", passed=2),
        Made("r", "failed", "failed", passed=1),
    ])  # fmt: skip
    assert rows(run)["direct"]["control_at_equal_tokens"]["hidden"] == 1


def test_faults_and_unfinished_attempts_enter_no_rate(run: Run) -> None:
    run.problem("A")
    run.problem("B")
    run.problem("C")
    run.attempt("A", "direct", [Made("a", "passed", "passed")], stop="passed")
    broken = run.attempt("B", "direct", [], status="running")
    run.store.add_fault(broken, "model_error", "503")
    run.attempt("C", "direct", [Made("c", "passed", "")], status="ended")
    with open_run(run.directory) as reading:
        data = report(reading)
    row = data["rows"][0]
    assert row["attempts"] == {"begun": 3, "done": 1, "faults": 1, "unfinished": 1}
    assert (row["visible"]["of"], row["hidden"]["of"], row["charged"]["replies"]) == (1, 1, 1)
    assert data["run"]["faults"] == {"model_error": 1}
    assert data["paid"]["replies"] == 2


def test_problem_without_hidden_suite_is_counted_apart(run: Run) -> None:
    run.problem("A", hidden=0)
    run.attempt("A", "direct", [Made("a", "passed", "")], stop="passed")
    row = rows(run)["direct"]
    assert (row["hidden"]["of"], row["hidden"]["without_suite"]) == (0, 1)
    assert row["visible_passed_hidden_failed"] == {"of": 0, "count": 0}


def test_unknown_price_is_not_free(run: Run) -> None:
    run.problem("A")
    run.problem("B")
    run.attempt("A", "direct", [Made("a", "passed", "passed")])
    assert rows(run)["direct"]["charged"]["cost"] is None
    run.attempt("B", "direct", [Made("a", "passed", "passed", cost=0.25)])
    money = rows(run)["direct"]["charged"]
    assert (money["cost"], money["unpriced_replies"], money["replies"]) == (0.25, 1, 2)


def test_attempt_without_a_candidate_stays_in_the_denominator(run: Run) -> None:
    run.problem("A")
    run.attempt("A", "direct", [], stop="no_candidate")
    row = rows(run)["direct"]
    assert (row["visible"]["of"], row["visible"]["final"]) == (1, 0)
    assert (row["hidden"]["of"], row["hidden"]["final"]) == (1, 0)


def test_verdicts_that_rest_on_the_programs_own_process_are_counted(run: Run) -> None:
    run.problem("A")
    run.attempt("A", "direct", [Made("a", "passed", "passed")], in_process=True)
    assert rows(run)["direct"]["hidden"]["in_process"] == 1


def test_oracle_is_marked(run: Run) -> None:
    run.store.set_meta("manifest", manifest(peek="oracle_peek"))
    run.problem("A")
    run.attempt("A", "peek", [Made("a", "passed", "passed")])
    assert rows(run)["peek"]["oracle"] is True


def test_data_is_json_and_the_same_at_every_reading(run: Run) -> None:
    study(run)
    with open_run(run.directory) as reading:
        first = json.dumps(report(reading), sort_keys=True)
    with open_run(run.directory) as reading:
        assert json.dumps(report(reading), sort_keys=True) == first
