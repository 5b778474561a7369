"""A run can be read while it is written, after a crash, and where nothing may be written; what is no run says so."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentloop.errors import UserError
from agentloop.reader import open_run
from agentloop.store import FILE

from .conftest import Made, Run

if TYPE_CHECKING:
    from collections.abc import Iterator


def count_without_rights(directory: Path) -> int:
    """The number of attempts that a user reads who may write nothing here (root may write everywhere: it forks)."""

    def count() -> int:
        with open_run(directory) as reading:
            return len(list(reading.attempts()))

    if os.getuid() != 0:
        return count()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 99
    try:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        status = count()
    finally:
        os._exit(status)


@pytest.fixture
def locked(run: Run) -> Iterator[Path]:
    """A copy of a run taken while its writer was at work, that nobody may write into."""
    run.problem("A")
    run.attempt("A", "direct", [Made("a", "passed", "passed")])
    copy = Path("/tmp") / f"agentloop-test-{os.getpid()}-{run.directory.parent.name}"
    shutil.copytree(run.directory, copy)
    for path in copy.iterdir():
        path.chmod(0o444)
    copy.chmod(0o555)
    yield copy
    copy.chmod(0o755)
    shutil.rmtree(copy)


def test_reads_beside_its_writer_and_sees_one_state(run: Run) -> None:
    run.problem("A")
    run.problem("B")
    run.attempt("A", "direct", [Made("a", "passed", "passed")])
    with open_run(run.directory) as reading:
        run.attempt("B", "direct", [Made("a", "passed", "passed")])
        assert [attempt.problem for attempt in reading.attempts()] == ["A"]
    with open_run(run.directory) as reading:
        assert [attempt.problem for attempt in reading.attempts()] == ["A", "B"]


@pytest.mark.parametrize("files", [(), ("-shm",)], ids=["log and index", "log without index"])
def test_reads_a_read_only_copy(locked: Path, files: tuple[str, ...]) -> None:
    locked.chmod(0o755)
    for suffix in files:
        (locked / (FILE + suffix)).unlink()
    locked.chmod(0o555)
    before = sorted(path.name for path in locked.iterdir())
    assert count_without_rights(locked) == 1
    assert sorted(path.name for path in locked.iterdir()) == before


def test_reads_a_read_only_copy_without_a_log(locked: Path) -> None:
    locked.chmod(0o755)
    for path in locked.iterdir():
        path.chmod(0o644)
    db = sqlite3.connect(locked / FILE)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    assert [path.name for path in locked.glob(f"{FILE}*")] == [FILE]
    (locked / FILE).chmod(0o444)
    locked.chmod(0o555)
    assert count_without_rights(locked) == 1


def test_a_branch_that_submits_is_not_the_end_of_the_attempt(run: Run) -> None:
    run.problem("A")
    attempt = run.attempt("A", "direct", [Made("a", "failed", "failed")], stop="budget")
    for step in range(9):
        update = {"submitted": {"path": "1", "index": 0, "rule": "last"}, "stop_reason": "inner"} if step == 8 else {}
        run.store.add_transition(attempt, {
            "path": "1", "step": step, "node": "branch/submit", "edge": "END", "reason": "",
            "data": {"update": update, "used": []}, "at": 0.0, "seconds": 0.0,
        })  # fmt: skip
    with open_run(run.directory) as reading:
        outline = reading.outline(attempt)
    assert (outline.submitted, outline.stop_reason) == (("", 0), "budget")


def test_the_node_around_an_inner_graph_adds_no_candidate(run: Run) -> None:
    run.problem("A")
    attempt = run.attempt("A", "direct", [Made("a", "failed", "failed"), Made("b", "passed", "passed", told=True)])
    with open_run(run.directory) as reading:
        steps = reading.outline(attempt).steps
        rows = reading.transitions(attempt)
    again = {"candidates": [row["data"]["update"]["candidates"][0] for row in rows if row["node"] == "run"]}
    run.store.add_transition(attempt, {
        "path": "", "step": 99, "node": "loop", "edge": "submit", "reason": "", "data": {"update": again, "used": []},
        "at": 0.0, "seconds": 0.0,
    })  # fmt: skip
    with open_run(run.directory) as reading:
        assert reading.outline(attempt).steps == steps


def test_what_is_no_run_says_so(tmp_path: Path, run: Run) -> None:
    with pytest.raises(UserError, match="no such run directory"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"it has runs in it: run$"):
        open_run(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="but a file"):
        open_run(tmp_path / "file")


def test_a_damaged_store_says_so(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database at all" * 100)
    with pytest.raises(UserError, match="damaged"):
        open_run(tmp_path)


def test_a_newer_schema_and_an_empty_run_are_refused(run: Run) -> None:
    run.store.db.execute("DELETE FROM meta")
    with pytest.raises(UserError, match="holds no run yet"):
        open_run(run.directory)
    run.store.db.execute("PRAGMA user_version=99")
    with pytest.raises(UserError, match=r"newer agentloop \(schema 99\)"):
        open_run(run.directory)
