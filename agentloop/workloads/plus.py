"""HumanEval+ and MBPP+ (EvalPlus, Apache-2.0): the same problems with hundreds of further inputs each.

The data file is the user's (`--data`): `HumanEvalPlus-OriginFmt.jsonl` or `MbppPlus-OriginFmt.jsonl`, plain or gzip,
whose `test` holds inputs and expected results as literals. (The main files hold no results: those come from running the
reference, which is not done on your machine.) Visible suites are those of HumanEval and MBPP; the hidden suite is all
inputs, as tests of kind `calls`: up to a hundred calls a process, since a process for each of 124,000 inputs would cost
an hour.

A result agrees as EvalPlus's `assertion` says (checker `evalplus:ATOL`), without two of its slips: numpy's broadcasting
lets `[1.0]` agree with `[]`, and in three problems of MBPP+ (737, 787, 794) the assertion compares and asserts nothing.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentloop.errors import UserError
from agentloop.plain import cap, decode, encode, to_source
from agentloop.types import Json, Limits, Problem, Suite, Test
from agentloop.workloads import humaneval, mbpp
from agentloop.workloads.asserts import script_test
from agentloop.workloads.records import Record, data_file, field, read_records

CALLS = 100
"""Calls of one test at most."""
ALONE = {"count_divisors": 10**8}
"""By function, the number above which a call is a test of its own, behind all others: nine of the inputs each take
right programs a third of the whole limit. (Not every call: a program that only waits has few such limits to wait.)"""
RESULTS = 48 * 2**10
"""Characters of the expected results of one test at most: a right program's answers fit its channel."""
LIMITS = Limits(cpu=20.0, wall=60.0)
"""Of a test, that is of up to a hundred calls."""
SLOW = {
    "sum_average": replace(LIMITS, cpu=90.0, wall=240.0),
    "get_total_number_of_sequences": replace(LIMITS, cpu=150.0, wall=400.0),
    "count_divisors": replace(LIMITS, cpu=150.0, wall=400.0),
}
"""By function, three times what right programs need: the reference of Mbpp/599 itself adds hundreds of millions of
numbers (some 25 s of CPU); in Mbpp/239 right programs walk through all sequences (21 to 51 s); in Mbpp/781 they try
every number up to 987,654,328 (28 to 45 s). A program that never ends takes two such limits, twice."""
COMPUTED, LARGEST = replace(LIMITS, output=4 * 2**20), 100_000
"""Where expected results are computed beside the program: limits of a test; the largest argument, and the most items or
characters of a result, that are asked for. (Some inputs of 1,000,000 have results of 15 MB, which measure speed.)"""
_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|\(|,?\)|-?\b(?:inf|nan)\b|\b(?:True|False|None)\b"""
    r"""|(?<![\w.])-?\d{16,}(?![\w.])"""
)
_WORDS = {"True": "true", "False": "false", "None": "null", "(": '{"tuple":[', ")": "]}", ",)": "]}"}
_AGREES = """
from copy import deepcopy

def size(value):
    if isinstance(value, (list, tuple)):
        return 1 + sum(map(size, value))
    return len(value) if isinstance(value, str) else 1

def agrees(out, exp):
    if out == exp:
        return True
    whole = out if isinstance(exp, (list, tuple)) else [out]
    parts = exp if isinstance(exp, (list, tuple)) else [exp]
    return len(whole) == len(parts) and all(
        isinstance(b, float) and abs(a - b) <= 1e-6 + 1e-7 * abs(b) for a, b in zip(whole, parts)
    )
"""


def load_humaneval(data: Path | None) -> list[Problem]:
    """HumanEval+, in the order of the file. Raises `UserError` for bad data or none."""
    return [_humaneval(place, record) for place, record in _records("humanevalplus", "HumanEvalPlus", data)]


def load_mbpp(data: Path | None) -> list[Problem]:
    """MBPP+, in the order of the file. Raises `UserError` for bad data or none."""
    return [_mbpp(place, record) for place, record in _records("mbppplus", "MbppPlus", data)]


def _records(workload: str, file: str, data: Path | None) -> Iterator[tuple[str, Record]]:
    for place, record in read_records(data_file(workload, data, f"{file}-OriginFmt.jsonl")):
        if "plus_input" in record:
            raise UserError(f"{place}: this file holds no expected results: give {file}-OriginFmt.jsonl with --data")
        yield place, record


def _humaneval(place: str, record: Record) -> Problem:
    problem = humaneval.problem(place, record, "humanevalplus", _hidden)
    return replace(problem, limits=_limits(problem.hidden.tests))


def _mbpp(place: str, record: Record) -> Problem:
    asserts = [str(each) for each in field(place, record, "test_list", list)]
    conditions = [mbpp.condition_of(place, source) for source in asserts]
    entry = mbpp.entry_point(place, conditions)
    imports = [str(each) for each in record.get("test_imports") or []]
    hidden, notes = _hidden(place, field(place, record, "test", str), entry)
    return Problem(
        id=f"Mbpp/{field(place, record, 'task_id', int)}",
        workload="mbppplus",
        statement=mbpp.statement(field(place, record, "prompt", str), asserts[0]),
        interface="function",
        visible=Suite("visible", (mbpp.assert_test("v1", asserts[0], conditions[0], entry, "", imports),)),
        hidden=Suite("hidden", hidden),
        entry_point=entry,
        references=(field(place, record, "code", str),),
        limits=SLOW.get(entry) or _limits(hidden),
        notes=notes,
    )


def _too_large(entry: str, args: list[Json]) -> bool:
    """Whether the result would fill a gigabyte of memory, or megabytes of text."""
    if entry == "combinations_colors" and isinstance(args[0], list):  # of n things k at a time, each as often as wanted
        count = args[1] if isinstance(args[1], int) else 0
        return count > 0 and math.comb(len(args[0]) + count - 1, count) > 10 * LARGEST
    return isinstance(args[0], int) and args[0] > LARGEST


def _limits(tests: tuple[Test, ...]) -> Limits:
    return COMPUTED if tests[0].kind == "script" else LIMITS


def _hidden(place: str, source: str, entry: str, prelude: str = "") -> tuple[tuple[Test, ...], tuple[str, ...]]:
    """The tests of a `test` field: literals `inputs` and `results`, and how they are compared. (See `HiddenSuite`.)"""
    texts = dict(re.findall(r"^[ ]*(inputs|results) = (\[.*\])$", source, re.MULTILINE))
    code = re.sub(r"^([ ]*)(inputs|results) = \[.*\]$", r"\1\2 = []", source, flags=re.MULTILINE)
    if "inputs" not in texts:
        raise UserError(f"{place}: field 'test' has no line 'inputs = [...]'")
    inputs = [_list(each) for each in literal(place, texts["inputs"])]
    if "results" not in texts or "_poly(" in code:
        kept = [each for each in inputs if not _too_large(entry, each)]
        dropped = len(inputs) - len(kept)
        notes = (f"inputs left out because their results take megabytes: {dropped}",) if dropped else ()
        return tuple(_scripts(code, kept, entry)), notes
    found = re.search(r"\bassertion\(.*, exp, ([\d.e-]+)\)\s*$", code)
    if found is None:
        raise UserError(f"{place}: field 'test' does not end with assertion(..., exp, ATOL)")
    results = literal(place, texts["results"])
    checker = f"evalplus:{found[1]}"
    if "out is not None" in code:
        checker = "match"
    elif "out = set(out)" in code:
        checker, results = "equal:set", [encode(set(decode(each))) for each in results]
    if len(inputs) != len(results):
        raise UserError(f"{place}: field 'test' has {len(inputs)} inputs and {len(results)} results")
    return tuple(_batches(inputs, results, entry, checker)), ()


def _batches(inputs: list[list[Json]], results: list[Json], entry: str, checker: str) -> Iterator[Test]:
    large = [entry in ALONE and isinstance(args[0], int) and args[0] > ALONE[entry] for args in inputs]
    order = sorted(range(len(inputs)), key=large.__getitem__)
    inputs, results = ([of[place] for place in order] for of in (inputs, results))
    start, number, alone = 0, 1, len(inputs) - sum(large)
    while start < len(inputs):
        end = min(alone, start + CALLS) if start < alone else start + 1
        while len(values := json.dumps(results[start:end])) > RESULTS and end > start + 1:
            end = (start + end) // 2
        calls = json.dumps(inputs[start:end])  # kept as text: as values they would take ten times the memory
        first = f"{entry}({', '.join(to_source(each, 300) for each in inputs[start])})"
        more = f", and {end - start - 1} further calls" if end - start > 1 else ""
        show = cap(f"{first} gives {to_source(results[start], 300)}{more}")
        yield Test(f"h{number}", "calls", {"function": entry, "calls": calls}, {"values": values}, checker, show)
        start, number = end, number + 1


def _scripts(code: str, inputs: list[list[Json]], entry: str) -> Iterator[Test]:
    """Where the expected result is computed: the helper that does it, in a checker's process beside the program."""
    helpers = [
        ast.unparse(node)
        for node in ast.parse(code).body
        if not (isinstance(node, ast.FunctionDef) and node.name in ("is_floats", "assertion", "check"))
        and "numpy" not in ast.unparse(node)
    ]
    if "def _poly(" in code:
        loop = f"for xs, in inputs:\n    assert abs(_poly(xs, {entry}(list(xs)))) <= 1e-4"
    else:
        loop = (
            f"for inp in inputs:\n    expected = ref_func(*deepcopy(inp))\n    if size(expected) <= {LARGEST}:\n"
            f"        assert agrees({entry}(*inp), expected)"
        )
    for number, start in enumerate(range(0, len(inputs), CALLS // 10), 1):
        part = [decode(each) for each in inputs[start : start + CALLS // 10]]
        yield script_test(
            f"h{number}", "\n".join([*helpers, _AGREES, f"inputs = {part!r}", loop]), entry, show=cap(loop)
        )


def literal(place: str, text: str) -> list[Json]:
    """A list as Python writes it, as plain data. By tokens: a syntax tree of half a megabyte takes 300 MB."""
    if "{" not in text or "{" not in _TOKEN.sub("", text):
        try:
            return _list(json.loads(_TOKEN.sub(_token, text)))
        except ValueError:
            pass  # complex numbers, bytes: the slow way knows them
    try:
        tree = _Named().visit(ast.parse(text, mode="eval"))
        return _list(encode(ast.literal_eval(tree)))
    except (ValueError, SyntaxError, RecursionError) as error:
        raise UserError(f"{place}: field 'test': inputs and results must be literals: {error}") from error


def _list(value: Any) -> list[Json]:
    if isinstance(value, dict) and "tuple" in value:
        value = value["tuple"]
    if not isinstance(value, list):
        raise ValueError("a list is missing")
    return value


def _token(match: re.Match[str]) -> str:
    token = match[0]
    if token in _WORDS:
        return _WORDS[token]
    if token[0] in "'\"":
        if "\\" not in token and '"' not in token[1:-1]:  # printable, as `repr` writes it: JSON's own form
            return f'"{token[1:-1]}"'
        return json.dumps(encode(ast.literal_eval(token)))
    return json.dumps(encode(float(token) if token[-1] in "fn" else int(token)))


class _Named(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = {"inf": math.inf, "nan": math.nan}.get(node.id)
        return node if value is None else ast.copy_location(ast.Constant(value), node)
