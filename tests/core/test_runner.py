"""The runner: faults are never verdicts, ceilings and interrupts end cleanly, nothing is half-written."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from agentloop import config, planning, runner
from agentloop.errors import IN_A_ROW, UserError
from agentloop.runner import Control

from .conftest import ADD, Study, fenced

RIGHT = {"reply": fenced("return a + b")}


def _problems(number: int) -> list[dict[str, Any]]:
    return [{**ADD, "id": f"p/{index}"} for index in range(number)]


def _all(run: Path, query: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(run / "store.sqlite")
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


def test_a_providers_fault_is_recorded_and_retried_by_the_next_run_never_scored(study: Study, tmp_path: Path) -> None:
    rules = [{"any": "p-one", "fault": "authentication", "times": 1, "reply": RIGHT["reply"]}, RIGHT]
    problems = [{**ADD, "id": "p/1", "statement": "p-one"}, {**ADD, "id": "p/2"}]
    summary, run = study(rules, ["direct"], problems)
    assert (summary.done, summary.faults) == (1, 1)
    assert _all(run, "SELECT attempt, try, kind FROM faults") == [(1, 1, "model_error")]
    assert _all(run, "SELECT status FROM attempts ORDER BY id") == [("fault",), ("done",)]
    assert _all(run, "SELECT attempt FROM grades") == [(2,)]
    summary, run = study(rules, ["direct"], problems)
    assert _all(run, "SELECT attempt, try FROM faults") == [(1, 1), (1, 2)] or (summary.done, summary.faults) == (1, 0)


def test_a_dead_infrastructure_ends_the_run_with_one_clear_reason(study: Study) -> None:
    summary, run = study([{"fault": "dead"}], ["direct"], _problems(40), attempts=2)
    assert summary.faults < 40
    assert summary.stopped.startswith(f"{IN_A_ROW} faults in a row")
    assert _all(run, "SELECT count(*) FROM grades") == [(0,)]


def test_a_runs_ceiling_holds_and_a_larger_one_goes_on(study: Study) -> None:
    problems = _problems(6)
    summary, run = study([RIGHT], ["direct"], problems, max_tokens=1200)
    paid = sum(_tokens(run))
    assert "--max-tokens 1,200" in summary.stopped
    assert 0 < summary.done < 6
    assert paid <= 1200
    summary, run = study([RIGHT], ["direct"], problems, max_tokens=100_000)
    assert summary.stopped == ""
    assert _all(run, "SELECT DISTINCT status FROM attempts") == [("done",)]


def _tokens(run: Path) -> list[int]:
    from agentloop.reader import open_run

    with open_run(run) as reading:
        return [charge.prompt + charge.completion for charge in reading.paid()]


class _After:
    """An observer that acts after so many finished attempts."""

    def __init__(self, count: int, act: Any) -> None:
        self.count, self.act = count, act

    def event(self, kind: str, /, **data: object) -> None:
        if kind == "done":
            self.count -= 1
            if self.count == 0:
                self.act()


def _run(tmp_path: Path, act: str, delay: float = 0.0) -> tuple[runner.Summary, Path]:
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in _problems(30)))
    (tmp_path / "s.jsonl").write_text(json.dumps({**RIGHT, "delay": delay}) + "\n")
    tables = {
        "workload": {"name": "jsonl", "data": "p.jsonl"},
        "models": [{"name": "scripted:s.jsonl"}],
        "strategies": [{"name": "direct"}],
        "sandbox": "local",
        "attempts": 4,
    }
    plan = planning.make_plan(config.parse(tables), tmp_path)
    control = Control()
    observer = _After(3, getattr(control, act))
    return asyncio.run(runner.run(plan, tmp_path / "run", observer, control)), tmp_path / "run"


def test_drain_finishes_what_runs_and_starts_no_more(tmp_path: Path) -> None:
    summary, run = _run(tmp_path, "drain")
    assert 3 <= summary.done <= 7
    assert summary.stopped == "interrupted"
    assert _all(run, "SELECT DISTINCT status FROM attempts") == [("done",)]


def test_cancel_stops_at_once_and_records_it(tmp_path: Path) -> None:
    with pytest.raises(asyncio.CancelledError):
        _run(tmp_path, "cancel", delay=0.05)
    run = tmp_path / "run"
    statuses = dict(_all(run, "SELECT status, count(*) FROM attempts GROUP BY status"))
    assert statuses.get("running", 0) == 0
    assert {kind for (kind,) in _all(run, "SELECT kind FROM faults")} <= {"cancelled"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"strategies": [{"name": "feedback_lop"}]}, "did you mean 'feedback_loop'"),
        ({"strategies": [{"name": "direct", "settings": {"stile": "default"}}]}, "did you mean 'style'"),
        ({"strategies": [{"name": "feedback_loop", "settings": {"history": "ful"}}]}, "history = 'ful'"),
        ({"strategies": [{"name": "direct", "settings": {"style": "defalt"}}]}, "did you mean 'default'"),
        ({"strategies": [{"name": "self_debug", "roles": {"explainer": "gpt"}}]}, "unknown model for role 'explainer'"),
        ({"sandbox": "dokcer"}, "did you mean 'docker'"),
        ({"workload": {"name": "humanevl"}}, "did you mean 'humaneval'"),
        ({"workload": {"name": "jsonl", "data": "none.jsonl"}}, "none.jsonl"),
        ({"workload": {"name": "jsonl", "data": "p.jsonl", "problems": ["p/x"]}}, "p/"),
        ({"models": [{"name": "scripted:none.jsonl"}]}, "none.jsonl"),
        ({"workload": {"name": "jsonl", "data": "cobol.jsonl"}}, "line 1: field 'language': unknown language 'cobol'"),
        ({"models": [{"name": "local/qwen"}]}, "qwen2.5-coder-0.5b"),
    ],
)
def test_bad_input_is_one_clear_error_and_leaves_no_directory(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps(ADD) + "\n")
    (tmp_path / "cobol.jsonl").write_text(json.dumps({**ADD, "language": "cobol"}) + "\n")
    (tmp_path / "s.jsonl").write_text(json.dumps(RIGHT) + "\n")
    tables = {
        "workload": {"name": "jsonl", "data": "p.jsonl"},
        "models": [{"name": "scripted:s.jsonl"}],
        "strategies": [{"name": "direct"}],
        "sandbox": "local",
        **change,
    }

    def plan_and_run() -> None:
        asyncio.run(runner.run(planning.make_plan(config.parse(tables), tmp_path), tmp_path / "run"))

    with pytest.raises(UserError) as caught:
        plan_and_run()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


class _Phases:
    """An observer that keeps what is started."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def event(self, kind: str, /, **data: Any) -> None:
        if kind == "phase":
            self.started.append(data["text"])


def test_a_provider_that_cannot_be_asked_is_found_before_a_sandbox_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps(ADD) + "\n")
    monkeypatch.delenv("AGENTLOOP_NO_OUTSIDE")
    tables = {
        "workload": {"name": "jsonl", "data": "p.jsonl"},
        "models": [{"name": "openai/gpt-4o"}],
        "strategies": [{"name": "direct"}],
        "sandbox": "local",
    }
    phases = _Phases()
    with pytest.raises(UserError, match="OPENAI_API_KEY"):
        asyncio.run(runner.run(planning.make_plan(config.parse(tables), tmp_path), tmp_path / "run", phases))
    assert phases.started == ["starting model openai/gpt-4o"]
    assert not (tmp_path / "run").exists()


def test_a_fault_in_a_strategys_own_node_is_one_line_with_its_file_and_line(study: Study, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "graphs" / "direct.py").read_text()
    broken = "\n\nasync def broken(state, runtime):\n    return {'messages': state['nothing']}\n"
    text = text.replace('nodes.prompt(kit.template(style, "task"))', "broken").replace(
        "\n\ndef build", broken + "\n\ndef build"
    )
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=r"strategy 'mine' failed in .*mine\.py, line \d+: KeyError: 'nothing'"):
        study([RIGHT], [str(tmp_path / "mine.py")])


def test_a_directory_that_cannot_be_written_is_refused_before_anything_is_started(study: Study, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UserError, match="cannot write run directory"):
        study([RIGHT], ["direct"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; a read-only mount is tried in tests/cli")
def test_a_read_only_directory_is_refused(study: Study, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o500)
    with pytest.raises(UserError, match="cannot write"):
        study([RIGHT], ["direct"])
