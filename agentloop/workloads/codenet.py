"""Problems on standard input and output in the record shape of PROBE, whose problems come from Project CodeNet.

The data file is the user's (`--data`), a problem a line: `problem_id`, `prompt`, `unit_tests` (a list of `number`,
`input`, `output`) and `references` (a list of `language`, `id`, `code`; those in Python are taken). Output agrees up to
white space at the ends of lines and of the text. The first test is visible and the others are hidden; the only test of
a problem stays hidden, and such a problem has no visible suite.
"""

from __future__ import annotations

from pathlib import Path

from agentloop.errors import UserError
from agentloop.plain import cap
from agentloop.types import Problem, Suite, Test
from agentloop.workloads.records import Record, data_file, field, read_records


def load(data: Path | None) -> list[Problem]:
    """All problems, in the order of the file. Raises `UserError` for bad data or none."""
    return [_problem(place, record) for place, record in read_records(data_file("codenet", data, "PROBLEMS.jsonl"))]


def _problem(place: str, record: Record) -> Problem:
    records = field(place, record, "unit_tests", list)
    if not records:
        raise UserError(f"{place}: field 'unit_tests' is empty: there is nothing to judge by")
    shown = 1 if len(records) > 1 else 0
    tests = [_test(place, test, "v" if index < shown else "h", index) for index, test in enumerate(records)]
    references = [
        field(place, each, "code", str)
        for each in record.get("references") or []
        if field(place, each, "language", str).lower() in ("python", "python3")
    ]
    return Problem(
        id=field(place, record, "problem_id", str),
        workload="codenet",
        statement=field(place, record, "prompt", str),
        interface="stdio",
        visible=Suite("visible", tuple(tests[:shown])),
        hidden=Suite("hidden", tuple(tests[shown:])),
        references=tuple(references),
        notes=() if shown else ("no visible suite: the only test is hidden",),
    )


def _test(place: str, test: object, suite: str, index: int) -> Test:
    if not isinstance(test, dict):
        raise UserError(f"{place}: field 'unit_tests' holds {str(test)[:80]}, which is no object")
    number = field(place, test, "number", int) if "number" in test else index + 1
    given, wanted = (field(place, test, key, str) for key in ("input", "output"))
    show = f"stdin:\n{cap(given)}\nstdout:\n{cap(wanted)}"
    return Test(f"{suite}{number}", "stdio", {"stdin": given}, {"stdout": wanted}, "text", show)
