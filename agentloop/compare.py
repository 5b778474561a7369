"""Checkers: does what a program gave agree with what was expected? Pure functions on plain data and text.

Checkers of calls (`value_agrees`), on values decoded from plain data, with Python's own `==` unless said otherwise:

* `equal`: `got == expected` (so `1 == 1.0 == True`, a tuple is no list, NaN is not NaN, an iterator is no list);
* `equal:CONVERSION`: the same after `list`, `tuple`, `set`, `sorted`, `int` or `round:N` of what was got;
* `is`: the very value None, True or False (1 is not True);
* `truthy`, `falsy`: `bool(got)`; an object that plain data cannot carry is true, as objects are in Python;
* `less:TOL`: `abs(got - expected) < TOL`; `isclose:REL:ABS`: Python's `math.isclose`;
* `close:TOL`: numbers differ by at most TOL, at any depth of equal containers; NaN agrees with NaN.
* `evalplus:TOL`: equal, or, where TOL is not 0 or a float (or a list or tuple of floats alone) is expected, numbers
  within TOL (1e-6 where it is 0) plus 1e-7 of the expected one, of sequences of one length;
* `json`: `==` once tuples and iterators at any depth are lists, as in JSON;
* `match`: True is expected of a true bool or of anything else but None, False of False or None.

Checkers of standard output (`text_agrees`), line ends normalised on both sides:

* `text`: white space at the ends of lines, and empty lines at the end, are ignored;
* `exact`: nothing else is ignored; `tokens`: only the words count;
* `float:TOL`: words as in `tokens`, numbers within TOL absolutely or relative to the expected number;
* `python:SOURCE`: `agrees(stdin, stdout, expected)` of this source says so, for problems with several right answers. It
  is code of the user's and runs in this process, outside of every sandbox; the texts are passed as they are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from agentloop.errors import UserError
from agentloop.plain import Iterated, cap, spread

_CONVERSIONS: dict[str, Any] = {
    "list": list, "tuple": tuple, "set": set, "sorted": sorted, "int": int, "round": round,
}  # fmt: skip


def value_agrees(checker: str, got: Any, expected: Any) -> bool:
    """Whether the value `got` satisfies a checker of calls. Raises `ValueError` for an unknown checker."""
    name, _, parameter = checker.partition(":")
    try:
        match name:
            case "equal":
                return bool((_convert(parameter, got) if parameter else got) == expected)
            case "is":
                return got is expected and (expected is None or isinstance(expected, bool))
            case "truthy":
                return bool(got)
            case "falsy":
                return not got
            case "less":
                return bool(abs(got - expected) < float(parameter))
            case "isclose":
                relative, _, absolute = parameter.partition(":")
                return math.isclose(got, expected, rel_tol=float(relative), abs_tol=float(absolute))
            case "close":
                return _close(got, expected, float(parameter))
            case "evalplus":
                return bool(got == expected) or _evalplus(got, expected, float(parameter))
            case "json":
                return bool(_lists(got) == _lists(expected))
            case "match":
                return bool(expected) is (got if isinstance(got, bool) else got is not None)
    except (TypeError, OverflowError, RecursionError):
        return False  # no such operation on what came out
    raise ValueError(f"unknown checker {checker!r}")


def text_agrees(checker: str, got: str, expected: str, given: str = "") -> bool:
    """Whether standard output satisfies a checker of text; `given` is what stood on standard input.

    Raises `ValueError` for an unknown checker, `UserError` where a checker of the user's fails.
    """
    name, _, parameter = checker.partition(":")
    if name == "python":
        return _users_own(parameter, given, got, expected)
    got, expected = (text.replace("\r\n", "\n").replace("\r", "\n") for text in (got, expected))
    match name:
        case "text":
            return _trimmed(got) == _trimmed(expected)
        case "exact":
            return got == expected
        case "tokens":
            return got.split() == expected.split()
        case "float":
            ours, theirs = got.split(), expected.split()
            tolerance = float(parameter)
            return len(ours) == len(theirs) and all(map(_word_close, ours, theirs, [tolerance] * len(ours)))
    raise ValueError(f"unknown checker {checker!r}")


def users_checker(source: str) -> Callable[[str, str, str], object]:
    """The function `agrees` of a checker's source. Raises `ValueError` where there is none."""
    scope: dict[str, Any] = {"__name__": "checker"}
    try:
        with redirect_stdout(sys.stderr):
            exec(compile(source, "checker", "exec"), scope)
    except KeyboardInterrupt:  # the user's
        raise
    except BaseException as error:
        raise ValueError(_told(error)) from error
    if not callable(scope.get("agrees")):
        raise ValueError("it defines no function agrees(stdin, stdout, expected)")
    function: Callable[[str, str, str], object] = scope["agrees"]
    return function


def _users_own(source: str, given: str, got: str, expected: str) -> bool:
    try:
        with redirect_stdout(sys.stderr):  # what it prints is not among verdicts that are printed
            answer = users_checker(source)(given, got, expected)
            if answer not in (True, False):  # a forgotten `return`, or a message that says what is wrong, is no verdict
                raise TypeError(f"agrees gave {cap(repr(answer), 100)}, which is neither True nor False")
            return bool(answer)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # one that calls sys.exit must not end us with a status of its own
        raise UserError(
            f"a checker of yours failed: {_told(error)}, where the program printed {cap(got, 200)!r}: "
            "it must answer for whatever a program prints"
        ) from error


def _told(error: BaseException) -> str:
    """What went wrong in code of the user's, of whose exceptions even the text may fail."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _word_close(got: str, expected: str, tolerance: float) -> bool:
    if got == expected:
        return True
    try:
        ours, theirs = float(got), float(expected)
    except ValueError:
        return False
    return "_" not in got and abs(ours - theirs) <= tolerance * max(1.0, abs(theirs))


def _convert(conversion: str, got: Any) -> Any:
    name, _, parameter = conversion.partition(":")
    function = _CONVERSIONS.get(name)
    if function is None:
        raise ValueError(f"unknown conversion {conversion!r} of a checker")
    if isinstance(got, Iterated):
        got = got.items if name == "set" else iter(got.items)
    try:
        if name == "set" and isinstance(got, list | tuple):
            spread(got)
        return function(got, int(parameter)) if parameter else function(got)
    except ValueError as error:  # int("x"), int(nan), too many items with one hash
        raise TypeError(str(error)) from error


def _lists(value: Any) -> Any:
    if isinstance(value, Iterated):
        value = value.items
    if isinstance(value, list | tuple):
        return [_lists(item) for item in value]
    return {key: _lists(item) for key, item in value.items()} if isinstance(value, dict) else value


def _evalplus(got: Any, expected: Any, tolerance: float) -> bool:
    sequence = isinstance(expected, list | tuple)
    parts = expected if sequence else [expected]
    if not tolerance and not all(isinstance(part, float) for part in parts):
        return False
    if sequence and not (isinstance(got, list | tuple) and len(got) == len(expected)):
        return False
    if tolerance and sequence and any(isinstance(part, list | tuple) for part in expected):
        return all(_evalplus(*pair, tolerance) for pair in zip(got, expected, strict=True))
    tolerance = tolerance or 1e-6
    pairs = zip(got if sequence else [got], parts, strict=True)
    return all(bool(abs(ours - theirs) <= tolerance + 1e-7 * abs(theirs)) for ours, theirs in pairs)


def _close(got: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, float | int | complex) and not isinstance(expected, bool):
        if isinstance(got, bool) or not isinstance(got, float | int | complex):
            return False
        if got == expected or (got != got and expected != expected):
            return True
        return abs(got - expected) <= tolerance
    if type(got) is not type(expected):
        return False
    if isinstance(expected, dict):
        return got.keys() == expected.keys() and all(_close(got[key], expected[key], tolerance) for key in expected)
    if isinstance(expected, Iterated):
        got, expected = got.items, expected.items
    if isinstance(expected, list | tuple):
        return len(got) == len(expected) and all(_close(*pair, tolerance) for pair in zip(got, expected, strict=True))
    return bool(got == expected)
