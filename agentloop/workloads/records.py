"""Reading data files: JSON lines or a JSON array, plain or gzip. Bad input is one `UserError` with file and line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentloop.errors import NOT_UTF_8, UserError, unreadable

Record = dict[str, Any]


def read_records(path: Path, data: bytes | None = None) -> Iterator[tuple[str, Record]]:
    """`(place, record)` of each record; `place` is "FILE line N" (or "FILE record N" in an array), for messages.

    `data`: the file's bytes where they are already known. Raises `UserError` for a file that cannot be read, holds no
    record, or where a line is no JSON object.
    """
    try:
        raw = path.read_bytes() if data is None else data
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read the data file {path}: {NOT_UTF_8}: {error}") from error
    except OSError as error:
        raise unreadable("the data file", path, error) from error
    except (EOFError, zlib.error) as error:
        raise UserError(f"cannot read the data file {path}: {error}") from error
    found = False
    for place, record in _array(path, text) if text.lstrip()[:1] == "[" else _lines(path, text):
        if not isinstance(record, dict):
            raise UserError(f"{place}: a record is a JSON object, not {type(record).__name__}")
        found = True
        yield place, record
    if not found:
        raise UserError(f"the data file {path} holds no record")


def field(place: str, record: Record, name: str, kind: type) -> Any:
    """A field that must be there and of a type. Raises `UserError` with place and field."""
    if name not in record:
        own = "; problems of your own go by --workload jsonl" if {"id", "statement"} <= record.keys() else ""
        raise UserError(f"{place}: field {name!r} is missing (there: {', '.join(map(repr, record)) or 'none'}){own}")
    value = record[name]
    if not isinstance(value, kind):
        raise UserError(f"{place}: field {name!r} must be {kind.__name__}, not {type(value).__name__}")
    return value


def data_file(workload: str, data: Path | None, file: str) -> Path:
    """The data file of a workload that has none by itself; `file` is what it is called. Raises `UserError`."""
    if data is None:
        raise UserError(f"workload {workload} needs its data file: --data {file}")
    return data


def _lines(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    # split, not splitlines: a JSON string may hold other line separators of Unicode.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{path} line {number}"
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{place}: not JSON: {error}") from error


def _array(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    try:
        records = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    yield from ((f"{path} record {number}", record) for number, record in enumerate(records, 1))
