"""Resume and growth: nothing lost, nothing twice; what changes the meaning of stored results is refused."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentloop.errors import UserError
from agentloop.replay import replay

from .conftest import ADD, SQUARE, Study, fenced

RULES = [
    {"any": "it is wrong", "reply": fenced("return a + b + {seed}"), "template": True},
    {"reply": fenced("return a - b")},
]


def _problems(number: int) -> list[dict[str, Any]]:
    return [{**ADD, "id": f"p/{index}"} for index in range(number)]


def _calls(run: Path) -> tuple[int, int, int]:
    """(calls begun, different keys called, records) of replies and executions."""
    db = sqlite3.connect(run / "store.sqlite")
    try:
        begun = db.execute("SELECT count(*), count(DISTINCT key) FROM calls").fetchone()
        return (*begun, db.execute("SELECT count(*) FROM journal").fetchone()[0])
    finally:
        db.close()


def test_a_finished_run_costs_nothing_again_and_growth_costs_only_what_is_new(study: Study) -> None:
    study(RULES, ["direct"])
    first = _calls(study(RULES, ["direct"])[1])
    assert first == (3, 3, 3)  # one reply, one visible and one hidden execution
    summary, run = study(RULES, ["direct"])
    assert (summary.done, summary.reused, _calls(run)) == (0, 1, first)
    summary, run = study(RULES, ["direct", "feedback_loop"], [ADD, SQUARE], samples=2)
    assert (summary.done, summary.reused) == (7, 1)
    begun, keys, records = _calls(run)
    assert begun == keys == records


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 1}, "seed (was 0, is 1)"),
        ({"iterations": 2}, "strategies.feedback_loop.settings.iterations (was 3, is 2)"),
        ({"strategies": [{"name": "feedback_loop", "settings": {"history": "full"}}]}, "settings.history (was 'fresh'"),
        ({"models": [{"name": "scripted:{script}", "label": "script", "temperature": 0.5}]}, "params.temperature"),
        ({"sandbox": "local-reduced"}, "environment.isolation"),
    ],
)
def test_changing_the_meaning_of_what_is_there_is_refused_with_the_keys_that_differ(
    study: Study, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    study(RULES, ["feedback_loop"])
    strategies = change.pop("strategies", ["feedback_loop"])
    for model in change.get("models", []):
        model["name"] = model["name"].format(script=tmp_path / "script.jsonl")
    before = (tmp_path / "run" / "store.sqlite").read_bytes()
    with pytest.raises(UserError) as caught:
        study(RULES, strategies, **change)
    assert says in str(caught.value)
    assert (tmp_path / "run" / "store.sqlite").read_bytes() == before


def test_another_version_of_a_problem_is_refused(study: Study) -> None:
    study(RULES, ["direct"])
    with pytest.raises(UserError, match="other versions of 1 problems"):
        study(RULES, ["direct"], [{**ADD, "hidden": [{"assert": "add(2, 2) == 5"}]}])


def test_kill_9_at_random_moments_loses_nothing_and_asks_nothing_twice(study: Study, tmp_path: Path) -> None:
    # The same study, run undisturbed in one directory and killed again and again in another.
    problems, strategies = _problems(12), ["feedback_loop", "resample"]
    rules = [{**rule, "delay": 0.02} for rule in RULES]
    _, whole = study(rules, strategies, problems, "whole")
    script = (
        "import agentloop, json, sys\n"
        f"agentloop.run(json.load(open({str(tmp_path / 'tables.json')!r})), {str(tmp_path / 'killed')!r})\n"
    )
    tables = {
        "workload": {"name": "jsonl", "data": str(tmp_path / "problems.jsonl")},
        "models": [{"name": f"scripted:{tmp_path / 'script.jsonl'}", "label": "script"}],
        "strategies": [{"name": name} for name in strategies],
        "sandbox": "local",
    }
    (tmp_path / "tables.json").write_text(json.dumps(tables))
    rng = random.Random(7)
    kills = 0
    while True:
        process = subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
        target = rng.randrange(3, 40) if kills < 5 else 10**9
        seen = _records(tmp_path / "killed")
        while process.poll() is None and _records(tmp_path / "killed") < seen + target:
            time.sleep(0.005)  # polling the other process's progress, not waiting for a result
        if process.poll() is not None:
            assert process.returncode == 0
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills >= 3
    begun, keys, records = _calls(tmp_path / "killed")
    assert keys == records  # everything that was asked is there
    lost = begun - keys
    assert lost <= kills * 10  # only what was open when the process died was asked again
    for table in ("journal", "transitions", "grades", "attempts"):
        assert _table(tmp_path / "killed", table) == _table(whole, table)


def _records(run: Path) -> int:
    if not (run / "store.sqlite").exists():
        return 0
    db = sqlite3.connect(f"file:{run / 'store.sqlite'}?mode=ro", uri=True)
    try:
        return int(db.execute("SELECT count(*) FROM journal").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        db.close()


_COLUMNS = {
    "journal": "key, kind",
    "transitions": "attempt, path, step, node, edge, reason",
    "grades": "attempt, path, candidate, suite, outcome, detail, passed, total",
    "attempts": "id, problem, model, strategy, sample, status",
}


def _table(run: Path, table: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(run / "store.sqlite")
    try:
        return sorted(db.execute(f"SELECT {_COLUMNS[table]} FROM {table}").fetchall())
    finally:
        db.close()


async def test_a_resumed_run_replays_equal(study: Study, tmp_path: Path) -> None:
    import asyncio

    _, run = await asyncio.to_thread(study, RULES, ["feedback_loop"], _problems(3))
    assert (await replay(run)).equal
