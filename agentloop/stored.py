"""Stored programs, and verdicts on them, as JSON lines: what is read, what is refused, what is kept from before.

A line in is an object with `problem_id`, and `code` (the program) or `response` (a reply that it is taken out of), and
any other keys. A line out is the same object with the keys of `WRITTEN`. Files are read a line at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from typing import TYPE_CHECKING, Any, BinaryIO

from agentloop.errors import NOT_UTF_8, AgentloopError, UserError, unreadable
from agentloop.types import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from agentloop.types import Json

LONGEST = 32 * 2**20
"""Bytes of the longest line that is read."""
WRITTEN = (
    "suite", "first_failure", "outcome", "detail", "passed", "total", "tests", "extraction", "limits", "isolation",
    "trust", "seconds", "fault", "left_out", "judged",
)  # fmt: skip
"""Keys of a line out. `judged` holds the number of the line in, and short digests of line, problem and environment: by
them a later run knows what it may keep."""
_DIGEST = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One line in: its number (from 1), the object, a digest of its bytes, and how many they are."""

    number: int
    record: dict[str, Any]
    digest: str
    size: int


def read_entries(path: Path, known: Collection[str]) -> Iterator[Entry]:
    """Every stored program of a file or pipe, in order. Empty lines are passed over, and count.

    Raises `UserError` with the line's number: too long, not JSON, no object, no or an unknown `problem_id`, neither
    `code` nor `response`, a key of `WRITTEN`.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST + 1):
                number += 1
                if line.strip():
                    yield _entry(f"{path} line {number}", number, line, known)
    except OSError as error:
        raise unreadable("the programs", path, error) from error


def check_programs(path: Path) -> None:
    """Raises `UserError` where there are no programs to read, which is no pipe that may still bring some."""
    try:
        path.stat()
    except OSError as error:
        raise unreadable("the programs", path, error) from error
    if path.is_dir():
        raise UserError(f"cannot read the programs {path}: it is a folder")


def _entry(place: str, number: int, line: bytes, known: Collection[str]) -> Entry:
    if len(line) > LONGEST:
        raise UserError(f"{place}: longer than {LONGEST // 2**20} MiB, which is no program")
    line = line.rstrip(b"\r\n")
    if number == 1 and line.startswith(b"\x1f\x8b"):
        raise UserError(
            f"{place}: it is compressed: unpack it first, or gzip -dc FILE | agentloop judge --programs - ..."
        )
    if number == 1 and line.lstrip().startswith(b"["):
        raise UserError(f"{place}: it is a JSON array: write one object a line, as jq -c '.[]' FILE does")
    try:
        record = json.loads(line)
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: {NOT_UTF_8}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise UserError(f"{place}: a stored program is a JSON object, not {type(record).__name__}")
    id = record.get("problem_id")
    if not isinstance(id, str):
        there = ", ".join(_short(key) for key in list(record)[:8]) or "none"
        raise UserError(f"{place}: key 'problem_id' must be a string" if "problem_id" in record else
                        f"{place}: key 'problem_id' is missing (there: {there})")  # fmt: skip
    if id not in known:
        near = get_close_matches(id, known, n=1, cutoff=0.5) if len(id) < 1000 else []
        hint = f"did you mean {near[0]!r}? " if near else ""
        first = next(iter(known))
        raise UserError(
            f"{place}: unknown problem {_short(id)}: {hint}the workload has {len(known)}, the first is {first!r}"
        )
    texts = [record.get(key) for key in ("code", "response")]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise UserError(f"{place}: 'code' and 'response' are strings")
    if all(text is None for text in texts):
        raise UserError(f"{place}: there is neither 'code' (a program) nor 'response' (a reply that holds one)")
    for key in WRITTEN:
        if key in record:
            raise UserError(f"{place}: key {key!r} is one that a verdict has: rename it")
    return Entry(number, record, hashlib.sha256(line).hexdigest()[:_DIGEST], len(line))


def _short(text: str) -> str:
    return repr(text) if len(text) <= 100 else f"{text[:80]!r}... ({len(text):,} characters)"


def check_output(path: Path) -> None:
    """Raises `UserError` for what is no file that can be gone on with: a device, a pipe, a folder."""
    if (path.exists() and not path.is_file()) or str(path).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        raise UserError(f"{path} is no regular file: name one, or print the verdicts with -o -")


Kept = tuple[Entry, int, "Json | None"]
"""A stored program, the index of its verdict in the file, and the verdict, or None where it is missing."""


class Printed:
    """Verdicts on standard output, in place of a file: nothing was there before, nothing can be gone on with."""

    def kept(self, *_: object) -> Iterator[Kept]:
        """Nothing."""
        return iter(())

    kept_anywhere = kept

    def write(self, line: Mapping[str, Any]) -> None:
        """Print a verdict at once. Raises `AgentloopError`."""
        try:
            _whole(sys.stdout.fileno(), encoded(line))
        except OSError as error:
            raise AgentloopError(f"cannot print the verdicts: {error.strerror or error}") from error

    def replace(self, lines: Mapping[int, Mapping[str, Any]]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Output:
    """The file of verdicts, open for this process alone. Nothing of it is changed before `kept` has seen all of it.

    `check_output` lets the path pass. Raises `UserError` where it cannot be written, or another process writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()  # of a link, what it leads to: that is what is replaced
        self._made = not self.path.exists()
        self._file = _locked(self.path)
        self._end = self._file.seek(0, os.SEEK_END)

    def kept(
        self, entries: Iterator[Entry], problems: Mapping[str, str], settings: Mapping[str, Any]
    ) -> Iterator[Kept]:
        """Every line that is there with the stored program that it judges, the next of `entries`.

        A last line that was cut off is removed, and missing. `problems`: id -> digest of the problem as it is judged;
        `settings`: what every line has alike. Raises `UserError` at the first that does not fit: then the file stays as
        it is.
        """
        self._file.seek(0)
        begin = 0
        for index, text in enumerate(self._file):
            place = f"{self.path} line {index + 1}"
            entry = next(entries, None)
            if entry is None:
                raise UserError(f"{place}: there are more verdicts than programs: name another file with -o")
            if not text.endswith(b"\n"):
                if not _cut(text, entry.record):
                    raise _foreign(place)
                self._end = self._file.truncate(begin)
                yield entry, index, None
                return
            line = _verdict(place, text)
            _check(place, line, entry, problems, settings)
            yield entry, index, line
            begin += len(text)

    def kept_anywhere(
        self, entries: Iterator[Entry], problems: Mapping[str, str], settings: Mapping[str, Any]
    ) -> Iterator[Kept]:
        """The same where the lines that are there are in any order: up to the last program that has one.

        Programs before it without a line are missing. (They are those that were judged when an earlier run ended.)
        """
        self._file.seek(0)
        begin, cut = 0, b""
        where: dict[int, tuple[int, int]] = {}
        for index, text in enumerate(self._file):
            if not text.endswith(b"\n"):
                cut = text
                break
            number = _verdict(f"{self.path} line {index + 1}", text)["judged"]["line"]
            if number in where:
                raise UserError(f"{self.path} line {index + 1}: line {number} of the programs has a verdict already: "
                                "name another file with -o")  # fmt: skip
            where[number] = index, begin
            begin += len(text)
        ours = not cut or bool(where)
        while where or not ours:
            entry = next(entries, None)
            if entry is None and not ours:
                raise _foreign(f"{self.path} line 1")
            if entry is None:
                raise UserError(f"{self.path}: there are more verdicts than programs: name another file with -o")
            index, start = where.pop(entry.number, (0, None))
            if start is None:
                ours = ours or _cut(cut, entry.record)
                yield entry, index, None
                continue
            self._file.seek(start)
            place = f"{self.path} line {index + 1}"
            line = _verdict(place, self._file.readline())
            _check(place, line, entry, problems, settings)
            yield entry, index, line
        if cut:
            self._end = self._file.truncate(begin)

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a verdict; a reader of the file sees it at once. Raises `AgentloopError` with nothing half-written."""
        try:
            _whole(self._file.fileno(), encoded(line))
        except OSError as error:
            os.ftruncate(self._file.fileno(), self._end)
            raise self._failed(error) from error
        self._end = os.fstat(self._file.fileno()).st_size

    def replace(self, lines: Mapping[int, Mapping[str, Any]]) -> None:
        """Put new lines in the place of some, by index from 0. The file is never seen in between.

        Raises `AgentloopError`: then it is as it was.
        """
        if not lines:
            return
        # A name that nothing else has: what a killed process left is found again.
        beside = self.path.with_name(f".agentloop-{os.fstat(self._file.fileno()).st_ino}.new")
        beside.unlink(missing_ok=True)
        new = _locked(beside)
        try:
            shutil.copymode(self.path, beside)
            self._file.seek(0)
            for index, text in enumerate(self._file):
                new.write(encoded(lines[index]) if index in lines else text)
            new.flush()
            beside.replace(self.path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            with suppress(OSError):
                new.close()
            raise self._failed(error) from error
        self._file.close()
        self._file, self._end = new, new.tell()

    def close(self) -> None:
        """Close the file; one that was made for nothing goes. Safe to call twice."""
        if self._made and not self._end and not self._file.closed:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _failed(self, error: OSError) -> AgentloopError:
        return AgentloopError(f"cannot write {self.path}: {error.strerror or error}; mend that and run again to go on")


def _check(place: str, line: Json, entry: Entry, problems: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """Raises `UserError` where a verdict that is there is not the one that is asked for."""
    parts = [f"{key} = {line.get(key)!r}, now {value!r}" for key, value in settings.items() if line.get(key) != value]
    number = line["judged"]["line"]
    if line["judged"]["input"] != entry.digest and number != entry.number:
        raise UserError(f"{place}: it judges line {number} of the programs, here line {entry.number} is due: a file in "
                        "another order goes on with --unordered")  # fmt: skip
    if line["judged"]["input"] != entry.digest:
        differs = f"it judges another program than line {number} of the programs has"
    elif line["judged"]["problem"] != problems[id := entry.record["problem_id"]]:
        differs = f"its problem {id!r} has changed since (its tests, its limits or what a validation says of it)"
    elif parts:
        differs = f"it was judged with {'; '.join(parts)} is asked for"
    else:
        return
    raise UserError(f"{place}: {differs}: name another file with -o, or remove this one")


def _whole(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def encoded(line: Mapping[str, Any]) -> bytes:
    """A line of the file. Lone surrogates stay escaped, so that any text survives."""
    return json.dumps(line, ensure_ascii=True).encode() + b"\n"


def _verdict(place: str, text: bytes) -> Json:
    """A line that this module wrote. Raises `UserError` for another."""
    try:
        line = json.loads(text)
        told = [line["suite"], *(line["judged"][key] for key in ("input", "problem", "environment"))]
        if line["outcome"] is None:
            told.append(line["fault"] if "fault" in line else line["left_out"])
        elif line["outcome"] in OUTCOMES:
            told.append(line["trust"])
        else:
            raise _foreign(place)
        if not isinstance(line["judged"]["line"], int) or not all(isinstance(value, str) for value in told):
            raise _foreign(place)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise _foreign(place) from error
    return line


def _foreign(place: str) -> UserError:
    return UserError(f"{place}: this is no file of verdicts: name another one with -o")


def _cut(text: bytes, record: Json) -> bool:
    """Whether a text is the beginning of the line that is written for a stored program."""
    # A `code` of null gives way to the program that was found in the response.
    begin = encoded(dict(takewhile(lambda item: item != ("code", None), record.items())))[:-2]
    return text.startswith(begin) or begin.startswith(text)


def _locked(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_ino != path.stat().st_ino:
            raise BlockingIOError  # opened just before its writer put a new file in its place
    except OSError as error:
        file.close()
        raise UserError(f"another process writes {path}") from error
    return file
