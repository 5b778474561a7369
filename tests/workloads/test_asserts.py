"""Asserts as tests: each form becomes the checker that means the same, everything else stays code."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from agentloop.compare import value_agrees
from agentloop.plain import decode
from agentloop.types import Test
from agentloop.workloads.asserts import call_test, is_vacuous, needs_program, script_test


def test_of(source: str) -> Test | None:
    return call_test("h1", ast.parse(source, mode="eval").body, "f", alias="candidate", show=source)


test_of.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "args", "kwargs", "checker", "expected"),
    [
        ("f(1, [2]) == (3, 4)", [1, [2]], {}, "equal", (3, 4)),
        ("candidate(2*3) == 1 + 1", [6], {}, "equal", 2),
        ("3 == f(x=1)", [], {"x": 1}, "equal", 3),
        ("f((1,))", [(1,)], {}, "truthy", None),
        ("not f({1: 2})", [{1: 2}], {}, "falsy", None),
        ("f() is True", [], {}, "is", True),
        ("f() is None", [], {}, "is", None),
        ("abs(f(1.5) - 2.0/3.0) < 1e-6", [1.5], {}, "less:1e-06", 2 / 3),
        ("tuple(f([1])) == tuple([1])", [[1]], {}, "equal:tuple", (1,)),
        ("set(f(1)) == {1}", [1], {}, "equal:set", {1}),
        ("int(f(5, 3)) == 35", [5, 3], {}, "equal:int", 35),
        ("round(f(1), 2) == -0.5", [1], {}, "equal:round:2", -0.5),
        ("math.isclose(f(1), 2.5, rel_tol=0.001)", [1], {}, "isclose:0.001:0.0", 2.5),
        ("math.isclose(f(1), 2.5)", [1], {}, "isclose:1e-09:0.0", 2.5),
        ("f(float('nan')) == float('inf')", [float("nan")], {}, "equal", float("inf")),
    ],
)
def test_forms(source: str, args: list[Any], kwargs: dict[str, Any], checker: str, expected: Any) -> None:
    test = test_of(source)
    assert test is not None
    assert (test.kind, test.checker, test.show) == ("call", checker, source)
    assert repr([decode(arg) for arg in test.input["args"]]) == repr(args)
    assert {name: decode(arg) for name, arg in test.input["kwargs"].items()} == kwargs
    if checker in ("truthy", "falsy"):
        assert test.expected is None
        value_agrees(checker, 1, None)
    else:
        assert test.expected is not None
        assert decode(test.expected["value"]) == expected


@pytest.mark.parametrize(
    "source",
    [
        "f(x) == 1",
        "f(1) == x",
        "f(1) == f(2)",
        "f(f(1)) == 1",
        "f(1) != 2",
        "f(1) < 2",
        "f(*[1]) == 1",
        "f(**{'a': 1}) == 1",
        "f(1)[0] == 1",
        "f(1) == 1 and f(2) == 2",
        "abs(f(1) - 2) <= 1e-6",
        "g(1) == 2",
        "f(object) == 1",
        "1 == 1",
        "all(f(i) for i in range(3))",
        "f(1) == sys.maxsize",
    ],
)
def test_other_code_is_no_call(source: str) -> None:
    assert test_of(source) is None


def test_vacuous_statements() -> None:
    source = "assert True, 'x'\n'docstring'\nprint\nassert 1\nassert False\nassert f(1)\nprint(1)\n"
    assert [is_vacuous(statement) for statement in ast.parse(source).body] == [True] * 4 + [False] * 3


@pytest.mark.parametrize(
    ("code", "needs"),
    [
        ("for i in range(3):\n    assert f(i) == str(i)", False),
        ("import math\nassert math.fabs(f(1)) < 1", False),
        ("assert f(1) == sys.getsizeof(1)", False),
        ("assert sum(map(lambda x: f(x), [1])) == 1", False),
        ("assert f(Node(1)) == 1", True),
        ("assert f((1, 'a'), int) == [1]", True),
        ("assert int(f(1)) == 1", False),
        ("root = Node(1)\nassert f(root)", True),
    ],
)
def test_scripts_that_need_more_of_the_program(code: str, needs: bool) -> None:
    assert needs_program([ast.parse(code)], "f") is needs


def test_random_inputs_are_the_same_in_each_run() -> None:
    code = script_test("h1", "from random import choice\nassert f(choice([1, 2]))", "f", show="").input["code"]
    assert code.startswith("import random\nrandom.seed(0)\n")
