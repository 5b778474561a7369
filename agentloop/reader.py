"""Reading a run: the read side of the store, while a writer is at work, after a crash, or on a read-only copy.

A `Reading` sees one snapshot from beginning to end and iterates lazily: memory does not grow with the run. Nothing here
writes into a run directory, and nothing needs a model, a sandbox or the graphs.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentloop.errors import UserError, missing
from agentloop.packing import Blobs
from agentloop.snapshot import connect
from agentloop.state import place_order
from agentloop.store import FILE, MIGRATIONS, read_manifest, read_transitions, runs_in

if TYPE_CHECKING:
    import tempfile
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from agentloop.types import Json

Place = tuple[str, int]
"""(branch path, index): which candidate of an attempt."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One row of `attempts`. `row` is the row of its problem; `status`: new, running, ended, done, fault."""

    id: int
    row: int
    workload: str
    problem: str
    model: str
    strategy: str
    sample: int
    status: str
    tries: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """A problem's number of visible and hidden tests."""

    visible: int
    hidden: int


@dataclass(frozen=True, slots=True)
class Span:
    """What a run's attempts have at most: the highest id and sample, and the hidden suite's outcomes that there are."""

    id: int
    sample: int
    hidden: list[str]


@dataclass(frozen=True, slots=True)
class Use:
    """What a transition took from the journal: a "reply" (by a role) or an "execution" (of a suite), by key."""

    kind: str
    key: str
    role: str


@dataclass(slots=True)
class Step:
    """A candidate without its texts. `uses` are its branch's uses since the candidate before it."""

    path: str
    index: int
    outcome: str
    passed: int
    total: int
    program: bool
    """False where no program was found in the reply."""
    told: bool
    """Feedback went to the model before it: it is a repair. Else a first or a fresh draw."""
    same_program: bool
    same_failure: bool
    uses: list[Use]


@dataclass(slots=True)
class Outline:
    """An attempt as numbers: its candidates in order of branch and index, the submitted one, what it used."""

    steps: list[Step] = field(default_factory=list)
    submitted: Place | None = None
    stop_reason: str = ""
    uses: list[Use] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Charge:
    """What one reply took. Tokens as the provider counted them, `cost` in US dollars (None: no price known)."""

    prompt: int
    completion: int
    cost: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Grade:
    """A suite's verdict on a candidate. `in_process`: part of it rests on a test that shared the program's process."""

    outcome: str
    detail: str
    passed: int
    total: int
    in_process: bool


class _Light(Blobs):
    """Unpacks records without fetching their long texts: where one stood there is its reference."""

    def _text(self, value: dict[str, Json]) -> Json:
        return value


class Reading:
    """An open run directory. Use as a context manager; `open_run` makes it."""

    def __init__(self, directory: Path, db: sqlite3.Connection, copy: tempfile.TemporaryDirectory[str] | None) -> None:
        self.directory = directory
        self._db, self._copy = db, copy
        self._blobs, self._light = Blobs(db), _Light(db)
        self.manifest: dict[str, Any] = read_manifest(db) or {}

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close; safe to call twice."""
        self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    def attempts(self, where: str = "1", values: tuple[object, ...] = ()) -> Iterator[Attempt]:
        """Attempts by model, strategy, problem and sample; `where` is SQL over `a` (attempts) and `p` (problems)."""
        cursor = self._db.execute(
            "SELECT a.id, a.problem, p.workload, p.problem, a.model, a.strategy, a.sample, a.status, a.tries "
            f"FROM attempts a JOIN problems p ON p.id = a.problem WHERE {where} "
            "ORDER BY a.model, a.strategy, a.problem, a.sample",
            values,
        )
        return (Attempt(*row) for row in cursor)

    def outline(self, attempt: int) -> Outline:
        """An attempt's numbers."""
        return _outline(read_transitions(self._db, self._light, attempt))

    def transitions(self, attempt: int) -> list[dict[str, Any]]:
        """An attempt's transitions with all their texts, in order of step and branch."""
        return list(read_transitions(self._db, self._blobs, attempt).values())

    def grades(self, attempt: int) -> dict[Place, Grade]:
        """The hidden suite's verdicts on an attempt's candidates."""
        found = {}
        for path, index, outcome, detail, passed, total, data in self._db.execute(
            "SELECT path, candidate, outcome, detail, passed, total, data FROM grades "
            "WHERE attempt=? AND suite='hidden'",
            (attempt,),
        ):
            tests = self._light.unpack(data)["tests"]
            trust = any(test.get("trust") == "in_process" for test in tests)
            found[path, index] = Grade(outcome, detail, passed, total, trust)
        return found

    def grade_tests(self, attempt: int, place: Place) -> list[dict[str, Any]]:
        """The test verdicts behind a grade."""
        row = self._db.execute(
            "SELECT data FROM grades WHERE attempt=? AND path=? AND candidate=? AND suite='hidden'", (attempt, *place)
        ).fetchone()
        return list(self._blobs.unpack(row[0])["tests"]) if row else []

    def record(self, key: str) -> Json | None:
        """The journal's record of a key with all its texts, or None."""
        row = self._db.execute("SELECT data FROM journal WHERE key=?", (bytes.fromhex(key),)).fetchone()
        return self._blobs.unpack(row[0]) if row else None

    def charge(self, key: str) -> Charge:
        """What a reply took. Raises `UserError` if the journal lacks it."""
        row = self._db.execute("SELECT data FROM journal WHERE key=?", (bytes.fromhex(key),)).fetchone()
        if row is None:
            raise UserError(f"{self.directory / FILE} is damaged: the journal lacks reply {key[:12]}")
        return _charge(self._light.unpack(row[0])["reply"])

    def paid(self) -> Iterator[Charge]:
        """What every reply of the journal took, each once."""
        for (data,) in self._db.execute("SELECT data FROM journal WHERE kind='reply'"):
            yield _charge(self._light.unpack(data)["reply"])

    def problem(self, row: int) -> dict[str, Any]:
        """A problem with all its texts (the fields of `agentloop.types.Problem`)."""
        return dict(self._blobs.unpack(self._db.execute("SELECT data FROM problems WHERE id=?", (row,)).fetchone()[0]))

    def sizes(self) -> dict[int, Sizes]:
        """How many tests the suites of each problem have, by problem row."""
        found = {}
        for row, data in self._db.execute("SELECT id, data FROM problems"):
            problem = self._light.unpack(data)
            found[int(row)] = Sizes(len(problem["visible"]["tests"]), len(problem["hidden"]["tests"]))
        return found

    def languages(self) -> set[str]:
        """The languages of the run's problems."""
        rows = self._db.execute("SELECT data FROM problems")
        return {self._light.unpack(data)["language"] for (data,) in rows}

    def problem_names(self) -> list[str]:
        """The run's problems by name, in the order in which they came."""
        return [name for (name,) in self._db.execute("SELECT problem FROM problems ORDER BY id")]

    def span(self) -> Span:
        """How far the run's attempts reach."""
        id, sample = self._db.execute("SELECT COALESCE(MAX(id), 0), COALESCE(MAX(sample), 0) FROM attempts").fetchone()
        rows = self._db.execute("SELECT DISTINCT outcome FROM grades WHERE suite='hidden'")
        return Span(id, sample, [outcome for (outcome,) in rows])

    def cancelled(self) -> set[int]:
        """Attempts whose latest fault is that they were stopped from outside: not failures, only not finished."""
        rows = self._db.execute("SELECT attempt, kind, MAX(id) FROM faults GROUP BY attempt")
        return {attempt for attempt, kind, _ in rows if kind == "cancelled"}

    def faults(self, attempt: int | None = None) -> list[dict[str, Any]]:
        """Faults of one attempt, or of all: attempt, try, kind, message, at (Unix seconds); oldest first."""
        names = ("attempt", "try", "kind", "message", "at")
        where, values = ("WHERE attempt=?", (attempt,)) if attempt is not None else ("", ())
        rows = self._db.execute(f"SELECT {', '.join(names)} FROM faults {where} ORDER BY id", values)
        return [dict(zip(names, row, strict=True)) for row in rows]


def open_run(directory: Path) -> Reading:
    """Open a run directory for reading. Raises `UserError`: no run directory, a newer schema, a damaged store."""
    path = directory / FILE
    if not path.is_file():
        raise _no_run(directory)
    db, copy = None, None
    try:
        db, copy = connect(path)
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        if version > len(MIGRATIONS):
            raise UserError(
                f"{directory} was written by a newer agentloop (schema {version}); update agentloop to read it"
            )
        if version < len(MIGRATIONS):
            raise UserError(f"{directory} has an older schema ({version}); `agentloop run` on it brings it up to date")
        reading = Reading(directory, db, copy)
        if not reading.manifest:
            raise UserError(f"{directory} holds no run yet: it was stopped before its first attempt")
        return reading
    except BaseException as error:
        if db is not None:
            db.close()
        if copy is not None:
            copy.cleanup()
        if isinstance(error, sqlite3.Error | OSError):
            raise UserError(f"{path} is not a store of agentloop, cannot be read, or is damaged: {error}") from error
        raise


def _no_run(directory: Path) -> UserError:
    if not directory.exists():
        near = [*runs_in(directory.parent), *runs_in(directory.parent / "runs")]
        return missing(f"{directory}: no such run directory", directory, near)
    if not directory.is_dir():
        return UserError(f"{directory} is not a run directory but a file")
    inside = [path.name for path in runs_in(directory)]
    hint = f"; it has runs in it: {', '.join(inside[:8])}" if inside else ""
    return UserError(f"{directory} is not a run directory (it has no {FILE}){hint}")


def _outline(rows: Mapping[Place, dict[str, Any]]) -> Outline:
    outline = Outline()
    steps: dict[Place, Step] = {}
    since: dict[str, tuple[bool, list[Use]]] = {}  # by branch: feedback given, and uses, since its last candidate
    ends: list[tuple[int, int, dict[str, Any]]] = []
    for (path, number), row in rows.items():
        update = row["data"]["update"]
        uses = [Use(*use) for use in row["data"]["used"]]
        outline.uses += uses
        told, used = since.get(path, (False, []))
        told, used = told or "feedback" in update, used + uses
        for entry in update.get("candidates", []):
            place = (entry["path"], entry["index"])
            if place not in steps:  # the node around an inner graph repeats what the inner rows said
                steps[place] = _step(entry, told, used)
                told, used = False, []
        since[path] = told, used
        if "submitted" in update:
            ends.append((_depth(path), -number, update))
        outline.stop_reason = update.get("stop_reason") or outline.stop_reason
    outline.steps = [steps[place] for place in sorted(steps, key=place_order)]
    if ends:
        # The trunk has the last word: an inner graph that submits on a branch is not the attempt's end.
        last = min(ends, key=lambda end: end[:2])[2]
        chosen = last["submitted"]
        outline.submitted = (chosen["path"], chosen["index"]) if chosen else None
        outline.stop_reason = last.get("stop_reason") or outline.stop_reason
    return outline


def _depth(path: str) -> int:
    return path.count(".") + 1 if path else 0


def _step(entry: dict[str, Any], told: bool, uses: list[Use]) -> Step:
    return Step(
        path=entry["path"], index=entry["index"], outcome=entry["outcome"],
        passed=entry["passed"], total=entry["total"], program=entry["code"] is not None, told=told,
        same_program=entry["same_program"] is not None, same_failure=entry["same_failure"] is not None, uses=uses,
    )  # fmt: skip


def _charge(reply: dict[str, Any]) -> Charge:
    return Charge(reply["prompt_tokens"], reply["completion_tokens"], reply["cost"], reply["seconds"])
