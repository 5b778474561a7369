"""QuixBugs: classic algorithms with one wrong line each, to be repaired (Python; MIT, copyright James Koppel).

The data file is the user's (`--data quixbugs.jsonl`): a line a program, with `name`, `buggy_python`, `correct_python`,
`tests` (a list of [arguments, expected]) or, where that is null, `pytest` source with functions `test1`, `test2`, ...
The graph programs among these work on objects of the class in `node.py`, which must lie beside the file.

The first test is visible, the others are hidden. JSON knows no tuple and no generator: where it says list, each of them
will do (checker `json`). Tests on objects share the program's process (`trust` tells). The statement is the wrong
program, which its own specification follows.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from agentloop.errors import UserError
from agentloop.plain import encode, to_source
from agentloop.types import Limits, Problem, Suite, Test
from agentloop.workloads.asserts import script_test, test_id
from agentloop.workloads.records import Record, data_file, field, read_records

_NODE = """import sys, types
node = types.ModuleType("node")
exec({source!r}, node.__dict__)
sys.modules["node"] = node
Node = node.Node
"""
_TASK = "One line of this Python program is wrong. Write the whole program with that line corrected.\n\n"


def load(data: Path | None) -> list[Problem]:
    """All problems, in the order of the file. Raises `UserError` for bad data or none."""
    path = data_file("quixbugs", data, "quixbugs.jsonl (with node.py beside it)")
    return [_problem(place, record, path) for place, record in read_records(path)]


def _problem(place: str, record: Record, data: Path) -> Problem:
    name, buggy, correct = (str(field(place, record, key, str)) for key in ("name", "buggy_python", "correct_python"))
    notes: tuple[str, ...] = ()
    if record.get("tests"):
        cases = [case for case in field(place, record, "tests", list) if not _slow(name, case)]
        if len(cases) < len(record["tests"]):
            notes = ("a test dropped: the right program takes more than 20 s for it",)
        tests = [_case(place, name, number, case) for number, case in enumerate(cases)]
    else:
        tests = _functions(place, name, str(field(place, record, "pytest", str)), data)
    if len(tests) < 2:
        raise UserError(f"{place}: {name} needs two tests, one to show and one to keep hidden")
    return Problem(
        id=name,
        workload="quixbugs",
        statement=f"{_TASK}```python\n{buggy.strip()}\n```\n",
        interface="function",
        visible=Suite("visible", tuple(tests[:1])),
        hidden=Suite("hidden", tuple(tests[1:])),
        entry_point=name,
        references=(correct,),
        limits=Limits(cpu=10.0, wall=40.0),  # the right levenshtein takes seconds for some words
        notes=notes,
    )


def _slow(name: str, case: Any) -> bool:
    return name == "levenshtein" and len("".join(case[0])) > 60


def _case(place: str, name: str, number: int, case: Any) -> Test:
    match case:
        case [list(args), expected]:
            pass
        case _:
            raise UserError(f"{place}: field 'tests' holds {str(case)[:80]}, which is not [arguments, expected]")
    # The original test allows the error that the last argument names.
    checker = f"close:{float(args[-1])!r}" if name == "sqrt" else "json"
    call = {"function": name, "args": [encode(arg) for arg in args], "kwargs": {}}
    show = f"assert {name}({', '.join(to_source(encode(arg)) for arg in args)}) == {to_source(encode(expected))}"
    return Test(test_id(number), "call", call, {"value": encode(expected)}, checker, show)


def _functions(place: str, name: str, source: str, data: Path) -> list[Test]:
    """Each `testN` as a script; on plain data beside the program, on nodes inside its process."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise UserError(f"{place}: field 'pytest' does not parse: {error}") from error
    live = any(isinstance(node, ast.Name) and node.id == "Node" for node in ast.walk(tree))
    head = ""
    if live:
        path = data.parent / "node.py"
        try:
            head = _NODE.format(source=path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"{place}: {name} needs {path}, the class of its nodes: {error.strerror}") from error
    shared = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    head = "\n".join([head, *shared, ""])
    tests: list[Test] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            body = ast.unparse(node)
            code = f"{head}{body}\n{node.name}()\n"
            tests.append(script_test(test_id(len(tests)), code, name, show=body, in_process=live))
    return tests
