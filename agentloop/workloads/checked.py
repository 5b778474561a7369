"""What somebody else's `load` function got wrong, told before anything runs and not by a verdict on a program."""

from __future__ import annotations

import json
from typing import get_args

from agentloop.compare import text_agrees, value_agrees
from agentloop.errors import unknown_name
from agentloop.plain import Unplain, decode
from agentloop.types import Json, Problem, Test, TestKind

_INPUT: dict[str, set[str]] = {
    "stdio": {"stdin"}, "call": {"function", "args", "kwargs"}, "calls": {"function", "calls"},
    "script": {"function", "code"},
}  # fmt: skip
_EXPECTED = {"stdio": "stdout", "call": "value", "calls": "values"}


def problem_fault(problem: object) -> str:
    """Why an object is no problem that can be judged, or ''."""
    if not isinstance(problem, Problem):
        return f"load gives agentloop.types.Problem objects, not {type(problem).__name__}"
    place = f"problem {problem.id!r}"
    if problem.interface not in ("function", "stdio"):
        return f"{place}: {unknown_name('interface', problem.interface, ('function', 'stdio'))}"
    if problem.interface == "function" and not problem.entry_point:
        return f"{place}: a problem with the interface 'function' has an entry_point"
    for suite in (problem.visible, problem.hidden):
        for test in suite.tests:
            if fault := _test_fault(test):
                return f"{place}: {suite.name} test {test.id!r}: {fault}"
        if len({test.id for test in suite.tests}) < len(suite.tests):
            return f"{place}: two {suite.name} tests have one id"
    return ""


def plain_fault(data: Json) -> str:
    """Why a value is no plain data in standard JSON, or ''. Python's reader takes NaN, and infinity as 1e999."""
    try:
        json.dumps(data, allow_nan=False)
        decode(data)
    except Unplain as error:
        return str(error)
    except ValueError:
        return 'NaN and infinity are no JSON: write {"float": "nan"}, {"float": "inf"}, {"float": "-inf"}'
    except RecursionError:
        return "nested too deep"
    except TypeError:
        return "not plain data: encode it with agentloop.plain.encode"
    return ""


def _test_fault(test: Test) -> str:
    if test.kind not in _INPUT:
        return str(unknown_name("kind", str(test.kind), get_args(TestKind)))
    if missing := _INPUT[test.kind] - set(test.input):
        return f"its input lacks {min(missing)!r}"
    key, checker = _EXPECTED.get(test.kind), test.checker
    if key and checker not in ("truthy", "falsy") and key not in (test.expected or {}):
        return f"what it expects lacks {key!r}"
    if test.kind == "call":
        for data in (test.input["args"], *test.input["kwargs"].values(), (test.expected or {}).get("value")):
            if fault := plain_fault(data):
                return fault
    if test.kind == "script":
        known = ("script", "in_process")
        return "" if checker in known else str(unknown_name("checker", checker, known))
    try:
        if test.kind != "stdio":
            value_agrees(checker, 0, 0)
        elif not checker.startswith("python:"):
            text_agrees(checker, "", "")
    except ValueError as error:
        return f"checker {checker!r}: {error}"
    return ""
