"""Opening a store for reading: one snapshot, whatever the directory allows and whoever writes meanwhile."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path
from urllib.parse import quote

from agentloop.errors import UserError

COPY = "agentloop-read-"
"""Temporary copies are called so, with their reader's process number: what a killed reader left can be told."""


def connect(path: Path) -> tuple[sqlite3.Connection, tempfile.TemporaryDirectory[str] | None]:
    """A connection inside one read transaction, and the temporary copy that it reads, if it needed one."""
    try:
        return _begin(path, "mode=ro"), None
    except sqlite3.OperationalError as error:
        # In a directory that cannot be written SQLite may not lay the shared memory that a write-ahead log needs.
        if "readonly" not in str(error) and "unable to open" not in str(error):
            raise
    log = path.with_name(path.name + "-wal")
    if not log.exists() or log.stat().st_size == 0:
        return _begin(path, "immutable=1"), None
    copy = tempfile.TemporaryDirectory(prefix=f"{COPY}{os.getpid()}-")
    try:
        return _begin(_copied(path, log, Path(copy.name)), "mode=rw"), copy
    except BaseException:
        copy.cleanup()
        raise


def _begin(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{mode}", uri=True, isolation_level=None)
    try:
        db.execute("BEGIN")
        db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _copied(path: Path, log: Path, into: Path) -> Path:
    """Store and log copied as one state: a writer elsewhere moves the log into the store now and then."""
    for _ in range(5):
        before = path.stat()
        shutil.copyfile(path, into / path.name)
        if log.exists():
            shutil.copyfile(log, into / log.name)
        after = path.stat()
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
            return into / path.name
    raise UserError(f"{path} changes while it is copied: its writer is busy; try again")
