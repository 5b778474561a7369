"""MBPP: short Python problems of one sentence and three asserts (Google Research, CC BY 4.0); full set or sanitized.

The data file is the user's (`--data`): `mbpp.jsonl` or `sanitized-mbpp.json`, plain or gzip. The first assert is the
visible suite and stands in the statement, which does not name the function otherwise; the others are hidden.
Known quirks are kept as they are: some asserts of the full set compare a tuple that a set was turned into, so they ask
for one order where any would do.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from agentloop.errors import UserError
from agentloop.types import Limits, Problem, Suite, Test
from agentloop.workloads.asserts import call_test, modules_used, needs_program, script_test, test_id
from agentloop.workloads.records import Record, data_file, field, read_records

SLOW = {123: Limits(cpu=20.0, wall=60.0)}
"""Limits of problems whose own reference comes near the usual ones (3.5 to 5.6 s of CPU for `amicable_numbers_sum`)."""


def load(data: Path | None) -> list[Problem]:
    """All problems, in the order of the file. Raises `UserError` for bad data or none."""
    path = data_file("mbpp", data, "mbpp.jsonl (or sanitized-mbpp.json)")
    return [_problem(place, record) for place, record in read_records(path)]


def _problem(place: str, record: Record) -> Problem:
    task = field(place, record, "task_id", int)
    text = field(place, record, "prompt" if "prompt" in record else "text", str)
    setup = _lines(record.get("test_setup_code") or "")
    imports = [_lines(line) for line in record.get("test_imports") or []]
    asserts = [_lines(line) for line in field(place, record, "test_list", list)]
    if len(asserts) < 2:
        raise UserError(f"{place}: field 'test_list' needs two asserts, one to show and one to keep hidden")
    conditions = [condition_of(place, source) for source in asserts]
    entry = entry_point(place, conditions)
    tests = [
        assert_test(test_id(index), source, condition, entry, setup, imports)
        for index, (source, condition) in enumerate(zip(asserts, conditions, strict=True))
    ]
    shared = [test.id for test in tests if test.checker == "in_process"]
    return Problem(
        id=f"Mbpp/{task}",
        workload="mbpp",
        statement=statement(_lines(text), asserts[0]),
        interface="function",
        visible=Suite("visible", tuple(tests[:1])),
        hidden=Suite("hidden", tuple(tests[1:])),
        entry_point=entry,
        references=(_lines(field(place, record, "code", str)),),
        limits=SLOW.get(task, Limits()),
        notes=(f"tests that share the program's process: {', '.join(shared)}",) if shared else (),
    )


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def statement(text: str, shown: str) -> str:
    """What the model reads: the sentence, and the assert that it may see."""
    return f"{text.strip()}\nYour code should pass this test:\n{shown}\n"


def condition_of(place: str, source: str) -> ast.expr:
    """The condition of one assert. Raises `UserError`."""
    try:
        tree = ast.parse(source.strip())
    except SyntaxError as error:
        raise UserError(f"{place}: field 'test_list' holds {source!r}: {error}") from error
    match tree.body:
        case [ast.Assert(condition)]:
            return condition
    raise UserError(f"{place}: field 'test_list' holds {source!r}, which is not one assert")


def entry_point(place: str, conditions: Sequence[ast.expr]) -> str:
    """The function that every assert calls; one that is no wrapper such as `set(...)` or `math.isclose(...)`."""
    called = [
        {node.func.id for node in ast.walk(each) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        for each in conditions
    ]
    wrappers = {"set", "tuple", "list", "sorted", "len", "int", "float", "str", "round", "abs", "isinstance"}
    names = set.intersection(*called) - wrappers
    # Classes of the program may be called for arguments (`f([Pair(1, 2)])`): the function is the one called outside.
    calls = (node.func for node in ast.walk(conditions[0]) if isinstance(node, ast.Call))
    outer = next((name.id for name in calls if isinstance(name, ast.Name) and name.id in names), None)
    if outer is None:
        raise UserError(f"{place}: field 'test_list': the asserts call no function in common")
    return outer


def assert_test(id: str, source: str, condition: ast.expr, entry: str, setup: str, imports: list[str]) -> Test:
    """An assert as a call, or a script with its set-up."""
    test = call_test(id, condition, entry, show=source)
    if test:
        return test
    nodes = [ast.parse(setup), ast.parse("\n".join(imports)), condition]
    imports = [*imports, *(f"import {name}" for name in modules_used(nodes))]
    code = "\n".join([*imports, *([setup] if setup else []), source])
    return script_test(id, code, entry, show=source, in_process=needs_program(nodes, entry))
