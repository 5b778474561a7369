"""The store of a run: one SQLite file in the run directory, written by one process, read by any number.

Tables: `journal` (replies and executions, in the store before the graph uses them), `calls` (every live call when it
began: a call without a record was lost with its process), `attempts`, `transitions`, `faults`, `grades` (verdicts of
suites on candidates, a layer of its own), `problems`, `blobs` (texts by content) and `meta` (manifest, schema version).
Everything that a report says is derived from rows; nothing is kept twice.

Durability: WAL with synchronous=NORMAL. A killed process loses nothing that was acknowledged; a power cut may lose the
last commits but never tears a record.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeGuard

from agentloop.errors import AgentloopError, UserError
from agentloop.packing import Blobs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agentloop.types import Json, Problem, SuiteVerdict

FILE = "store.sqlite"
LOCK = "lock"

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE blobs(id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, data BLOB NOT NULL);
    CREATE TABLE journal(key BLOB PRIMARY KEY, kind TEXT NOT NULL, data BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE calls(key BLOB NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL);
    CREATE TABLE problems(id INTEGER PRIMARY KEY, workload TEXT NOT NULL, problem TEXT NOT NULL, digest TEXT NOT NULL,
        data BLOB NOT NULL, UNIQUE(workload, problem));
    CREATE TABLE attempts(id INTEGER PRIMARY KEY, problem INTEGER NOT NULL, model TEXT NOT NULL, strategy TEXT NOT NULL,
        sample INTEGER NOT NULL, status TEXT NOT NULL, tries INTEGER NOT NULL,
        UNIQUE(problem, model, strategy, sample));
    CREATE TABLE transitions(attempt INTEGER NOT NULL, path TEXT NOT NULL, step INTEGER NOT NULL, node TEXT NOT NULL,
        edge TEXT NOT NULL, reason TEXT NOT NULL, data BLOB NOT NULL, at REAL NOT NULL, seconds REAL NOT NULL,
        PRIMARY KEY(attempt, path, step)) WITHOUT ROWID;
    CREATE TABLE faults(id INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, try INTEGER NOT NULL, kind TEXT NOT NULL,
        message TEXT NOT NULL, at REAL NOT NULL);
    CREATE TABLE grades(attempt INTEGER NOT NULL, path TEXT NOT NULL, candidate INTEGER NOT NULL, suite TEXT NOT NULL,
        outcome TEXT NOT NULL, detail TEXT NOT NULL, passed INTEGER NOT NULL, total INTEGER NOT NULL,
        data BLOB NOT NULL, PRIMARY KEY(attempt, path, candidate, suite)) WITHOUT ROWID;
    """,
)
"""Appended, never edited: `user_version` counts those that a file has seen."""
_MANIFEST = {"name": str, "created": str, "agentloop": str, "seed": int, "workload": dict, "strategies": dict,
             "models": dict, "environment": dict, "environment_id": str}  # fmt: skip
_STRATEGY = {"name": str, "settings": dict, "roles": dict, "files": dict, "oracle": bool}
_MODEL = {"params": dict, "identity": dict}
"""What no manifest lacks, nor an entry of its strategies and models."""


class Store:
    """The one writer of a run directory. `Store.open` takes its lock; the kernel frees it with the process."""

    def __init__(self, directory: Path, db: sqlite3.Connection, lock: int) -> None:
        self.directory = directory
        self.db = db
        self.blobs = Blobs(db)
        self._lock = lock

    @classmethod
    def open(cls, directory: Path) -> Store:
        """Open or create. Raises `UserError` if the directory cannot be written or another process writes it."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UserError(f"cannot write run directory {directory}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise UserError(
                f"another process is writing {directory}; wait for it, or give another --out (report, show and list "
                "work meanwhile)"
            ) from error
        db = None
        try:
            db = sqlite3.connect(directory / FILE, isolation_level=None)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            _migrate(db, directory)
        except BaseException as error:
            if db is not None:
                db.close()
            os.close(lock)
            if isinstance(error, sqlite3.Error):
                raise _database_error(directory, error) from error
            raise
        return cls(directory, db, lock)

    def close(self) -> None:
        """Fold the write-ahead log into the file and free the lock."""
        try:
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            pass  # a full disk: what is committed is safe in the log
        finally:
            self.db.close()
            os.close(self._lock)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. Raises `AgentloopError` (disk full, I/O error) with nothing half-written."""
        try:
            self.db.execute("BEGIN IMMEDIATE")
            yield
            self.db.execute("COMMIT")
        except BaseException as error:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise _database_error(self.directory, error) from error
            raise

    # meta and problems

    def meta(self, key: str) -> Json:
        """A value of `meta`, None where there is none."""
        return read_meta(self.db, key)

    def manifest(self) -> dict[str, Any] | None:
        """What this run's results mean, None before its first attempt. Raises `AgentloopError`: damaged."""
        return read_manifest(self.db)

    def set_meta(self, key: str, value: Json) -> None:
        """Write a value of `meta`."""
        with self.transaction():
            self.db.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, json.dumps(value, sort_keys=True)))

    def add_problems(self, problems: list[Problem], digests: list[str]) -> dict[tuple[str, str], int]:
        """Rows of problems, new ones added. Raises `UserError` if a stored problem has another content now."""
        rows = {
            (workload, name): (row, digest)
            for row, workload, name, digest in self.db.execute("SELECT id, workload, problem, digest FROM problems")
        }
        changed = [
            problem.id
            for problem, digest in zip(problems, digests, strict=True)
            if rows.get((problem.workload, problem.id), (0, digest))[1] != digest
        ]
        if changed:
            raise UserError(
                f"{self.directory} holds other versions of {len(changed)} problems ({', '.join(changed[:3])}, ...): "
                "the data set or its loader changed; use a new --out"
            )
        with self.transaction():
            for problem, digest in zip(problems, digests, strict=True):
                if (problem.workload, problem.id) not in rows:
                    data = self.blobs.pack(asdict(problem))
                    cursor = self.db.execute(
                        "INSERT INTO problems(workload, problem, digest, data) VALUES(?, ?, ?, ?)",
                        (problem.workload, problem.id, digest, data),
                    )
                    rows[problem.workload, problem.id] = (int(cursor.lastrowid or 0), digest)
        return {key: row for key, (row, _) in rows.items()}

    # journal

    def recorded(self, key: str) -> Json | None:
        """The journal's record of a key, or None."""
        row = self.db.execute("SELECT data FROM journal WHERE key=?", (bytes.fromhex(key),)).fetchone()
        return self.blobs.unpack(row[0]) if row else None

    def begin_call(self, key: str, kind: str) -> None:
        """Note that a live call begins."""
        with self.transaction():
            self.db.execute("INSERT INTO calls VALUES(?, ?, ?)", (bytes.fromhex(key), kind, time.time()))

    def record(self, key: str, kind: str, data: Json) -> None:
        """Put an answer into the journal. A key is recorded once; a second record is a fault of ours and raises."""
        with self.transaction():
            packed = self.blobs.pack(data)
            self.db.execute("INSERT INTO journal VALUES(?, ?, ?)", (bytes.fromhex(key), kind, packed))

    def paid(self) -> tuple[float, float]:
        """(tokens, dollars) of every recorded reply: what the run's ceilings have used."""
        tokens = cost = 0.0
        for (data,) in self.db.execute("SELECT data FROM journal WHERE kind='reply'"):
            reply = self.blobs.unpack(data)["reply"]
            tokens += reply["prompt_tokens"] + reply["completion_tokens"]
            cost += reply["cost"] or 0.0
        return tokens, cost

    # attempts

    def done(self) -> set[tuple[int, str, str, int]]:
        """(problem row, model, strategy, sample) of every finished attempt."""
        rows = self.db.execute("SELECT problem, model, strategy, sample FROM attempts WHERE status='done'")
        return {(int(problem), model, strategy, int(sample)) for problem, model, strategy, sample in rows}

    def attempt(self, problem: int, model: str, strategy: str, sample: int) -> tuple[int, str, int]:
        """(id, status, tries) of an attempt, created as "new"."""
        where = (problem, model, strategy, sample)
        with self.transaction():
            self.db.execute(
                "INSERT OR IGNORE INTO attempts(problem, model, strategy, sample, status, tries) "
                "VALUES(?, ?, ?, ?, 'new', 0)",
                where,
            )
        row = self.db.execute(
            "SELECT id, status, tries FROM attempts WHERE problem=? AND model=? AND strategy=? AND sample=?", where
        ).fetchone()
        return int(row[0]), str(row[1]), int(row[2])

    def set_status(self, attempt: int, status: str, *, new_try: bool = False) -> None:
        """Move an attempt on: new, running, ended (graph over, not graded), done, fault."""
        with self.transaction():
            self.db.execute("UPDATE attempts SET status=?, tries=tries+? WHERE id=?", (status, int(new_try), attempt))

    def add_fault(self, attempt: int, kind: str, message: str) -> None:
        """Record a fault of an attempt under its current try number, and set its status."""
        with self.transaction():
            self.db.execute(
                "INSERT INTO faults(attempt, try, kind, message, at) "
                "SELECT id, tries, ?, ?, ? FROM attempts WHERE id=?",
                (kind, message[:2000], time.time(), attempt),
            )
            self.db.execute("UPDATE attempts SET status='fault' WHERE id=?", (attempt,))

    def add_transition(self, attempt: int, row: dict[str, Any]) -> None:
        """Append one transition: path, step, node, edge, reason, data, at, seconds."""
        with self.transaction():
            self.db.execute(
                "INSERT INTO transitions VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    attempt, row["path"], row["step"], row["node"], row["edge"], row["reason"],
                    self.blobs.pack(row["data"]), row["at"], row["seconds"],
                ),
            )  # fmt: skip

    def transitions(self, attempt: int) -> dict[tuple[str, int], dict[str, Any]]:
        """The stored transitions of an attempt by (path, step)."""
        return read_transitions(self.db, self.blobs, attempt)

    def add_grade(self, attempt: int, path: str, candidate: int, verdict: SuiteVerdict, execution: str) -> None:
        """Store a suite's verdict on a candidate; a second grading of the same replaces it."""
        data = self.blobs.pack({"execution": execution, "tests": [asdict(test) for test in verdict.tests]})
        with self.transaction():
            self.db.execute(
                "INSERT OR REPLACE INTO grades VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    attempt, path, candidate, verdict.suite, verdict.outcome, verdict.detail, verdict.passed,
                    verdict.total, data,
                ),
            )  # fmt: skip


def read_meta(db: sqlite3.Connection, key: str) -> Json:
    """A value of `meta`, None where there is none."""
    row = db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
    try:
        return json.loads(row[0]) if row else None
    except ValueError as error:
        raise AgentloopError(f"the store is damaged: its {key}: {error}") from error


def read_manifest(db: sqlite3.Connection) -> dict[str, Any] | None:
    """The run's manifest, None before its first attempt. Raises `AgentloopError`: rows lack what they rest on."""
    manifest = read_meta(db, "manifest")
    if manifest is None and db.execute("SELECT 1 FROM attempts LIMIT 1").fetchone() is None:
        return None
    if not _is_manifest(manifest):
        raise AgentloopError("the store is damaged: its manifest, which says what its rows mean, is gone or is none")
    for strategy, model in db.execute("SELECT DISTINCT strategy, model FROM attempts"):
        if strategy not in manifest["strategies"] or model not in manifest["models"]:
            raise AgentloopError(f"the store is damaged: its manifest does not know strategy {strategy!r}, {model!r}")
    if db.execute("SELECT 1 FROM attempts WHERE problem NOT IN (SELECT id FROM problems) LIMIT 1").fetchone():
        raise AgentloopError("the store is damaged: there are attempts whose problem is gone")
    return manifest


def _is_manifest(value: Json) -> TypeGuard[dict[str, Any]]:
    def has(value: Json, shape: Mapping[str, type]) -> bool:
        return isinstance(value, dict) and all(isinstance(value.get(key), kind) for key, kind in shape.items())

    return (
        has(value, _MANIFEST)
        and all(has(entry, _STRATEGY) for entry in value["strategies"].values())
        and all(has(entry, _MODEL) for entry in value["models"].values())
        and all(isinstance(path, str) for kind in ("specs", "bases") for path in (value.get(kind) or {}).values())
    )


def read_transitions(db: sqlite3.Connection, blobs: Blobs, attempt: int) -> dict[tuple[str, int], dict[str, Any]]:
    """The transitions of an attempt by (path, step), in order of time."""
    rows = db.execute(
        "SELECT path, step, node, edge, reason, data, at, seconds FROM transitions WHERE attempt=? ORDER BY step, path",
        (attempt,),
    )
    return {
        (path, step): {
            "path": path, "step": step, "node": node, "edge": edge, "reason": reason, "data": blobs.unpack(data),
            "at": at, "seconds": seconds,
        }
        for path, step, node, edge, reason, data, at, seconds in rows
    }  # fmt: skip


def _migrate(db: sqlite3.Connection, directory: Path) -> None:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise UserError(f"{directory} was written by a newer agentloop (schema {version}); update agentloop to read it")
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        db.executescript(f"BEGIN; {script}; PRAGMA user_version={number}; COMMIT;")


def runs_in(directory: Path) -> list[Path]:
    """The run directories that stand in a folder, by name."""
    return sorted(path.parent for path in directory.glob(f"*/{FILE}"))


def _database_error(directory: Path, error: sqlite3.Error) -> AgentloopError:
    text = str(error)
    if "full" in text:
        return AgentloopError(
            f"the disk of {directory} is full: nothing of the last step was written; free space and run again"
        )
    if "readonly" in text or "unable to open" in text:
        return UserError(f"cannot write run directory {directory}: {text}")
    if "not a database" in text or "malformed" in text:
        return UserError(f"{directory / FILE} is not a store of agentloop, or is damaged: {text}")
    return AgentloopError(f"store {directory}: {text}")
