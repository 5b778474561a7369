"""The safe evaluator: the values that Python gives, and nothing that could run or blow up."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.workloads.literals import NotLiteral, evaluate


def of(source: str) -> object:
    return evaluate(ast.parse(source, mode="eval").body)


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(literals)
def test_every_literal_is_itself(value: object) -> None:
    assert of(repr(value)) == value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("3 * 19 * 3", 171),
        ("2.0/3.0", 2 / 3),
        ("-7 // 2", -4),
        ("2 ** 10", 1024),
        ("10 % 4", 2),
        ("not 0", True),
        ("~5", -6),
        ("[0] * 3 + [1]", [0, 0, 0, 1]),
        ("'ab' * 2", "abab"),
        ("'a' + 'b'", "ab"),
        ("tuple([1, 2])", (1, 2)),
        ("set((4, 5))", {4, 5}),
        ("set()", set()),
        ("{1, 2} - {2}", {1}),
        ("list(range(3))", [0, 1, 2]),
        ("round(2.567, 1)", 2.6),
        ("dict(a=1)", {"a": 1}),
        ("float('inf')", float("inf")),
        ("sum([1, 2])", 3),
        ("sorted([2, 1], reverse=True)", [2, 1]),
        ("1 + 2j", 1 + 2j),
    ],
)
def test_arithmetic_and_conversions(source: str, value: object) -> None:
    assert of(source) == value
    assert type(of(source)) is type(value)


@pytest.mark.parametrize(
    "source",
    [
        "x", "f(1)", "__import__('os')", "open('x')", "(1).real", "[1][0]", "lambda: 1", "[x for x in [1]]", "1 < 2",
        "f'{1}'", "1 if 1 else 2", "1 / 0", "{[]}", "int('x')", "'%s' % 1", "tuple(1)", "dict(**{'a': 1})", "{**{}}",
        "[*[1]]", "round('x')", "1 and 2",
    ],
)  # fmt: skip
def test_anything_else_is_refused(source: str) -> None:
    with pytest.raises(NotLiteral):
        of(source)


@pytest.mark.parametrize(
    "source",
    [
        "10 ** 10 ** 10",
        "9 ** 9 ** 9",
        "2 ** -99999999",
        "[0] * 10 ** 9",
        "'a' * 10 ** 9",
        "10 ** 9 * (0,)",
        "[[0] * 99999] * 99999",
        "range(10 ** 12)",
        "list(range(10 ** 9))",
        "7 ** 9999 * 7 ** 9999",
    ],
)
def test_values_without_bounds_are_refused_unmade(source: str) -> None:
    with pytest.raises(NotLiteral):
        of(source)
