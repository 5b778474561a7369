"""The store: nothing lost, nothing twice, one writer, migrations, damage found."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

from agentloop.errors import AgentloopError, UserError
from agentloop.store import FILE, MIGRATIONS, Store
from agentloop.types import Limits, Problem, Suite, Test, problem_from

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ab" * 32


def test_a_record_comes_back_as_it_was_with_long_texts_kept_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "run")
    long = "x" * 5000 + " \ud800 lone surrogate, \u00e9"
    record = {
        "request": {"messages": [{"role": "user", "content": long}]},
        "reply": {"text": long, "n": [1, None, 2.5]},
    }
    store.record(KEY, "reply", record)
    assert store.recorded(KEY) == record
    assert store.db.execute("SELECT count(*) FROM blobs").fetchone() == (1,)
    assert store.recorded("cd" * 32) is None
    store.close()


def test_a_key_is_recorded_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "run")
    store.record(KEY, "reply", {"n": 1})
    with pytest.raises(AgentloopError):
        store.record(KEY, "reply", {"n": 2})
    assert store.recorded(KEY) == {"n": 1}
    store.close()


def _open_and_say(directory: Path, answers: multiprocessing.Queue[str]) -> None:
    try:
        Store.open(directory).close()
        answers.put("opened")
    except UserError as error:
        answers.put(str(error))


def test_a_second_writer_is_refused_and_a_dead_ones_lock_is_free(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = context.Queue()
    store = Store.open(tmp_path / "run")
    for expected in ("another process is writing", "opened"):
        process = context.Process(target=_open_and_say, args=(tmp_path / "run", answers))
        process.start()
        assert expected in answers.get(timeout=60)
        process.join()
        if expected != "opened":
            store.close()
    answers.close()
    answers.join_thread()


def _write_and_die(directory: Path, acknowledged: int) -> None:
    store = Store.open(directory)
    pid = os.getpid()
    for number in range(acknowledged):
        store.record(f"{number:064x}", "reply", {"n": number, "text": f"{number} " * 100})
    with store.transaction():
        store.db.execute("INSERT INTO meta VALUES('half', '1')")
        os.kill(pid, 9)


def test_kill_9_loses_nothing_acknowledged_and_keeps_nothing_half_written(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_write_and_die, args=(tmp_path / "run", 200))
    process.start()
    process.join()
    assert process.exitcode == -9
    store = Store.open(tmp_path / "run")
    kept = [store.recorded(f"{number:064x}") for number in range(200)]
    assert kept == [{"n": number, "text": f"{number} " * 100} for number in range(200)]
    assert store.db.execute("SELECT count(*) FROM journal").fetchone() == (200,)
    assert store.meta("half") is None
    assert store.db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    store.close()


def test_what_is_no_store_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database at all, but long enough to be looked at" * 40)
    with pytest.raises(UserError, match="not a store of agentloop"):
        Store.open(tmp_path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    db = sqlite3.connect(tmp_path / FILE)
    db.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(UserError, match="newer agentloop"):
        Store.open(tmp_path)


def _problem(expected: int) -> Problem:
    test = Test(
        "0", "call", {"function": "f", "args": [1], "kwargs": {}}, {"value": expected}, "equal", "assert f(1) == 2"
    )
    return Problem(
        "p/1", "w", "statement", "function", Suite("visible", (test,)), Suite("hidden", ()), limits=Limits(cpu=2)
    )


def test_problems_are_kept_whole_and_another_version_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "run")
    rows = store.add_problems([_problem(2)], ["d1"])
    assert rows == store.add_problems([_problem(2)], ["d1"]) == {("w", "p/1"): 1}
    data = store.blobs.unpack(store.db.execute("SELECT data FROM problems").fetchone()[0])
    assert problem_from(data) == _problem(2)
    with pytest.raises(UserError, match="other versions of 1 problems"):
        store.add_problems([_problem(3)], ["d2"])
    store.close()


def test_a_full_disk_is_one_clear_error_and_nothing_is_half_written(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "run")
    store.record(KEY, "reply", {"n": 1})
    pages = store.db.execute("PRAGMA page_count").fetchone()[0]
    store.db.execute(f"PRAGMA max_page_count={pages}")  # SQLite's own way to a disk that is full
    with pytest.raises(AgentloopError, match="is full"):
        store.record("cd" * 32, "reply", {"text": os.urandom(100_000).hex()})
    assert store.recorded("cd" * 32) is None
    assert store.recorded(KEY) == {"n": 1}
    store.close()
