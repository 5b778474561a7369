"""Values of literal-like source without running it: `3 * 19`, `[0] * 5`, `tuple([1, 2])`, `round(2 / 3, 2)`.

An evaluator over the syntax tree with a short list of operators and functions, bounded in time and size; never `eval`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

MAX_ITEMS = 100_000
"""Longest sequence or string that an operator or call may make."""
MAX_BITS = 20_000
"""Largest integer that an operator may make."""


class NotLiteral(ValueError):
    """The expression needs more than this evaluator does."""


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_, ast.Invert: operator.invert,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (tuple, list, set, frozenset, dict, range, sorted, round, abs, sum, len, min, max, float, int, str,
                     bool, complex)
}  # fmt: skip


def evaluate(node: ast.expr) -> Any:
    """The value of a literal-like expression. Raises `NotLiteral`, also for one that Python itself would refuse."""
    try:
        return _evaluate(node)
    except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
        raise NotLiteral(f"{type(error).__name__}: {error}") from error


def _evaluate(node: ast.expr | None) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.Tuple(elts):
            return tuple(map(_evaluate, elts))
        case ast.List(elts):
            return list(map(_evaluate, elts))
        case ast.Set(elts):
            return set(map(_evaluate, elts))
        case ast.Dict(keys, values):
            return {_evaluate(key): _evaluate(value) for key, value in zip(keys, values, strict=True)}
        case ast.UnaryOp(op, operand):
            return _UNARY[type(op)](_evaluate(operand))
        case ast.BinOp(left, op, right) if type(op) in _BINARY:
            return _binary(type(op), _evaluate(left), _evaluate(right))
        case ast.Call(ast.Name(name), args, keywords) if name in _CALLS:
            named = {keyword.arg: _evaluate(keyword.value) for keyword in keywords if keyword.arg is not None}
            if len(named) < len(keywords):
                raise NotLiteral("** in a call")
            return _call(name, [_evaluate(arg) for arg in args], named)
    raise NotLiteral(f"not a literal: {type(node).__name__}")


def _binary(kind: type[ast.operator], left: Any, right: Any) -> Any:
    numbers = isinstance(left, int | float | complex) and isinstance(right, int | float | complex)
    if numbers and isinstance(left, int) and isinstance(right, int):
        bits, other = left.bit_length(), right.bit_length()
        if (kind is ast.Pow and bits * abs(right) > MAX_BITS) or (kind is ast.Mult and bits + other > MAX_BITS):
            raise NotLiteral("the number is too large")
    elif not numbers and kind is ast.Mult:
        size, times = (left, right) if isinstance(right, int) else (right, left)
        if _items(size) * times > MAX_ITEMS:
            raise NotLiteral("the sequence is too long")
    elif not numbers and kind is not ast.Add and not isinstance(left, set | frozenset):
        raise NotLiteral("not arithmetic")  # "%" of strings is formatting
    return _BINARY[kind](left, right)


def _items(value: Any) -> int:
    """How many values a repetition copies, those inside it too: they are cheap here and dear once written out."""
    if isinstance(value, list | tuple):
        return len(value) + sum(map(_items, value))
    return len(value) if isinstance(value, str | bytes) else 1


def _call(name: str, args: list[Any], named: dict[str, Any]) -> Any:
    value = _CALLS[name](*args, **named)
    if isinstance(value, range) and len(value) > MAX_ITEMS:
        raise NotLiteral("the range is too long")
    return value
