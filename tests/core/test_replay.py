"""Replay: equal transition for transition, and what changed is named, with the turn from which it matters."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloop.catalog import root
from agentloop.packing import Blobs
from agentloop.progress import Quiet
from agentloop.reader import open_run
from agentloop.replay import Replayed, replay, replay_all, replay_into
from agentloop.report import report
from agentloop.sandbox import open_sandbox

from .conftest import ADD, SQUARE, Study, fenced

RULES = [
    {"first": "sum", "turn": 0, "any": "it is wrong", "reply": fenced("return a + b")},
    {"first": "sum", "reply": fenced("return a - b")},
    {"first": "square", "reply": fenced("return a + a", "def square(a):")},
]
ALL = ["direct", "resample", "feedback_loop", "self_debug", "reflexion", "fresh_start", "best_of_n"]


class _Watched(Quiet):
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []

    def event(self, kind: str, /, **data: Any) -> None:
        self.told.append((kind, data))


def _replayed(run: Path, **options: bool) -> Replayed:
    return asyncio.run(replay(run, **options))


def _executed(run: Path) -> Replayed:
    async def execute() -> Replayed:
        sandbox = open_sandbox("local", lanes=1)
        try:
            await sandbox.start()
            return await replay(run, sandbox=sandbox)
        finally:
            await sandbox.close()

    return asyncio.run(execute())


def _changed(run: Path, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(run / "store.sqlite")) as db, db:
        assert db.execute(statement).rowcount > 0


def _reexecuted(run: Path, change: Callable[[dict[str, Any]], None], verdicts: str) -> None:
    """Make the run one of another machine: `change` what its tests gave, and by SQL the verdicts that follow."""
    with contextlib.closing(sqlite3.connect(run / "store.sqlite")) as db, db:
        blobs = Blobs(db)
        for key, data in db.execute("SELECT key, data FROM journal WHERE kind='execution'").fetchall():
            record = blobs.unpack(data)
            for test in record["tests"]:
                change(test)
            db.execute("UPDATE journal SET data=? WHERE key=?", (blobs.pack(record), key))
    _changed(run, verdicts)
    assert _replayed(run).equal


def test_every_transition_of_every_strategy_is_equal_without_model_and_sandbox(study: Study) -> None:
    _, run = study(RULES, ALL, [ADD, SQUARE], samples=2)
    found = _replayed(run)
    db = sqlite3.connect(run / "store.sqlite")
    stored = db.execute("SELECT count(*) FROM transitions").fetchone()[0]
    grades = db.execute("SELECT count(*) FROM grades").fetchone()[0]
    db.close()
    assert found.equal
    assert (found.attempts, found.transitions, found.verdicts) == (28, stored, grades)
    assert found.changed == []


def test_processes_side_by_side_find_what_one_finds(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    _, run = study(RULES, ALL, [ADD, SQUARE], samples=2)
    _changed(run, "UPDATE transitions SET reason = 'of old' WHERE node = 'submit' AND attempt % 5 = 0")
    one = _replayed(run)
    assert [difference.attempt % 5 for difference in one.differences] == [0] * 5
    monkeypatch.setattr("agentloop.replay.WORTH_A_PROCESS", 7)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(4))  # 4 processes for 28 attempts
    watched = _Watched()
    many = replay_all(run, shown=lambda: watched)
    assert watched.told[0] == ("plan", {"total": 28, "reused": 0})
    assert watched.told[-1] == ("replayed", {"attempts": 28})
    one.differences.sort(key=lambda difference: difference.attempt)
    one.seconds = many.seconds
    assert many == one


FORKING = """
import os, signal, sys
from agentloop import replay
from agentloop.cli import main
replay.WORTH_A_PROCESS = 1
os.sched_getaffinity = lambda _: range(2)
forks = []
def forked():
    forks.append(1)
    {then}
os.register_at_fork(after_in_parent=forked)
sys.argv = ["agentloop", "replay", sys.argv[1]]
main()
"""


def _forking(run: Path, then: str) -> subprocess.CompletedProcess[str]:
    """A replay by two processes, which does something when it has forked one, up to the end of all of them."""
    argv = [sys.executable, "-c", FORKING.format(then=then), str(run)]
    return subprocess.run(argv, start_new_session=True, capture_output=True, text=True, check=False, timeout=60)


def test_ctrl_c_while_its_processes_start_ends_it_in_silence(study: Study) -> None:
    _, run = study(RULES, ["direct"], [ADD, SQUARE], samples=2)
    done = _forking(run, "os.killpg(0, signal.SIGINT)")  # to all of them, as a terminal sends it
    assert (done.returncode, done.stdout) == (130, "")
    assert "Traceback" not in done.stderr
    assert "killed" not in done.stderr


def test_its_processes_end_with_one_that_is_killed(study: Study) -> None:
    _, run = study(RULES, ["direct"], [ADD, SQUARE], samples=2)
    done = _forking(run, "forks[1:] and os.kill(os.getpid(), signal.SIGKILL)")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "", "")


def test_a_changed_template_is_named_with_the_attempts_and_the_turn_from_which_it_matters(
    study: Study, tmp_path: Path
) -> None:
    shutil.copytree(root() / "feedback_templates" / "default", tmp_path / "mine")
    strategies = [{"name": name, "settings": {"style": f"{tmp_path}/mine"}} for name in ("direct", "feedback_loop")]
    _, run = study(RULES, strategies, [ADD, SQUARE])
    assert _replayed(run).equal
    template = tmp_path / "mine" / "failed.j2"
    template.write_text(template.read_text().replace("This one fails", "This one does not pass"))
    found = _replayed(run)
    # `square` passes its visible suite at once: only the attempt that was told something is another one now.
    (only,) = found.differences
    assert (only.problem, only.strategy, only.turn, only.why) == ("p/add", "feedback_loop", 1, "template:mine/failed")
    assert found.changed == ["template:mine/failed (strategy feedback_loop)"]
    assert _replayed(run, frozen=True).equal


def test_a_strategy_file_that_is_gone_is_replayed_from_the_runs_own_copy(study: Study, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text((root() / "graphs" / "feedback_loop.py").read_text())
    _, run = study(RULES, [str(mine)])
    mine.unlink()
    found = _replayed(run)
    assert found.equal
    assert "the run's own copies are" in found.changed[0]


def test_a_changed_strategy_file_is_named(study: Study, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    text = (root() / "graphs" / "resample.py").read_text()
    mine.write_text(text)
    _, run = study(RULES, [str(mine)])
    mine.write_text(text.replace("nodes.submit()", 'nodes.submit("last")'))
    (only,) = _replayed(run).differences
    assert only.why == "strategy:mine"
    assert "(submit)" in only.where


def test_a_stored_verdict_that_does_not_follow_from_its_evidence_is_found(study: Study) -> None:
    _, run = study(RULES, ["direct"])
    _changed(run, "UPDATE grades SET outcome='passed', passed=2")
    (only,) = _replayed(run).differences
    assert "hidden verdict of candidate 0" in only.where


def test_a_journal_driven_through_a_new_directory_gives_the_same_report(study: Study, tmp_path: Path) -> None:
    _, run = study(RULES, ALL, [ADD, SQUARE])
    summary = asyncio.run(replay_into(run, tmp_path / "again"))
    assert (summary.done, summary.faults) == (14, 0)
    reports = []
    for directory in (run, tmp_path / "again"):
        with open_run(directory) as reading:
            data = report(reading)
        data.pop("run")
        reports.append(json.dumps(data, sort_keys=True))
    assert reports[0] == reports[1]


def test_execute_runs_the_programs_again_and_names_a_verdict_that_flips(study: Study) -> None:
    _, run = study(RULES, ["direct", "feedback_loop"], [ADD, SQUARE])
    assert _executed(run).equal

    # Evidence that another machine gave: the first hidden execution of `square` is made to look right.
    def right(test: dict[str, Any]) -> None:
        if json.loads(test["channel"] or "null") == {"value": 6}:
            test["channel"] = json.dumps({"value": 9})

    _reexecuted(
        run,
        right,
        "UPDATE grades SET outcome='passed', passed=1 WHERE attempt IN "
        "(SELECT a.id FROM attempts a JOIN problems p ON p.id=a.problem WHERE p.problem='p/square')",
    )
    flips = _executed(run).flips
    assert {(flip.problem, flip.strategy) for flip in flips} == {("p/square", "direct"), ("p/square", "feedback_loop")}


def test_a_program_that_meets_the_other_of_its_limits_has_not_flipped(study: Study) -> None:
    slow = {**SQUARE, "id": "p/slow", "visible": [], "limits": {"cpu": 0.2, "wall": 30}}
    _, run = study([{"first": "", "reply": fenced("while True: pass", "def square(a):")}], ["direct"], [slow])

    # What a machine sees that is too busy to give the program its CPU time.
    def busy(test: dict[str, Any]) -> None:
        assert test["limit"] == "cpu"
        test["limit"] = "wall"

    _reexecuted(run, busy, "UPDATE grades SET detail='wall_limit' WHERE detail='cpu_limit'")
    assert _executed(run).equal
