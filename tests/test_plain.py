"""Plain data: every value comes back, nothing hostile gets through, both ends speak the same."""

from __future__ import annotations

import ast
import json
import math
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentloop.sandbox
from agentloop.plain import Iterated, TooDeep, Unplain, cap, decode, encode, loads, to_source

DRIVER = runpy.run_path(str(Path(agentloop.sandbox.__file__).parent / "drivers" / "python_driver.py"))

hashable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()) | st.binary()
    | st.complex_numbers(allow_nan=False),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
values = st.recursive(
    hashable | st.sets(hashable, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(hashable, inner, max_size=3),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types all the way down (Python says 1 == 1.0 == True)."""
    return bool(left == right) and bool(repr_types(left) == repr_types(right))


def repr_types(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [type(value), *map(repr_types, value)]
    if isinstance(value, dict):
        return [dict, *(repr_types(item) for item in value.values())]
    return type(value)


@given(values)
def test_every_value_comes_back(value: Any) -> None:
    text = json.dumps(encode(value), allow_nan=False)
    text.encode()  # JSON text that UTF-8 can carry
    assert same(decode(loads(text)), value)


@settings(max_examples=50)
@given(values)
def test_the_driver_inside_the_sandbox_speaks_the_same(value: Any) -> None:
    assert same(decode(loads(DRIVER["encode"](value))), value)
    assert same(DRIVER["decode"](encode(value)), value)


@given(st.recursive(st.integers() | st.text() | st.none(), lambda inner: st.lists(inner) | st.tuples(inner, inner)))
def test_source_is_what_a_person_would_write(value: Any) -> None:
    assert ast.literal_eval(to_source(encode(value), limit=10**6)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1,), "(1,)"),
        (set(), "set()"),
        ({3, 1, 2}, "{1, 2, 3}"),
        (frozenset({1}), "frozenset({1})"),
        ({"a": [1.5, None]}, "{'a': [1.5, None]}"),
        (math.nan, "nan"),
        (range(3), "<iterator of [0, 1, 2]>"),
        (2**60, "1152921504606846976"),
        (b"\x00a", "b'\\x00a'"),
        ("\ud800", "'\\ud800'"),
    ],
)
def test_source_of_what_json_lacks(value: Any, text: str) -> None:
    assert to_source(encode(value)) == text


def test_a_number_of_100000_digits_is_shown_and_compared() -> None:
    huge = 1 << 400_000
    assert decode(encode(huge)) == huge
    assert len(to_source(encode(huge))) < 1300


def test_not_a_number_is_itself_not_equal_as_in_python() -> None:
    assert math.isnan(decode(encode(math.nan)))
    assert decode(encode([math.nan])) != decode(encode([math.nan]))


def test_an_iterator_is_no_list() -> None:
    assert decode({"iterator": [1, 2]}) == Iterated((1, 2))
    assert decode({"iterator": [1, 2]}) != [1, 2]
    assert decode(encode(range(2))) == decode({"iterator": [0, 1]})


@pytest.mark.parametrize(
    "data",
    [
        {"set": [[1]]},
        {"frozenset": [{"dict": []}]},
        {"dict": [[[1], 2]]},
        {"dict": [[1]]},
        {"dict": [1]},
        {"tuple": 1},
        {"int": "12x"},
        {"int": 5},
        {"float": "1.5"},
        {"bytes": "???"},
        {"str": "/w=="},
        {"complex": [1]},
        {"complex": ["a", 1]},
        {"complex": [{"int": hex(10**400)}, 1]},
        {"set": [number * (2**61 - 1) for number in range(600)]},
        {"frozenset": [number * (2**61 - 1) for number in range(600)]},
        {"dict": [[number * (2**61 - 1), 0] for number in range(600)]},
        {"eval": "1"},
        {"tuple": [], "set": []},
        {},
    ],
)
def test_what_no_python_value_is_is_refused(data: Any) -> None:
    with pytest.raises(Unplain):
        decode(data)


@pytest.mark.parametrize("text", ["", "{", "nul", "[1,]", '"\\x"', "1" * 5000, "[" * 100_000, '{"tuple":' * 300])
def test_text_that_is_no_plain_data_is_refused(text: str) -> None:
    with pytest.raises(Unplain):
        decode(loads(text))


def test_depth_is_bounded_and_brackets_in_strings_are_no_depth() -> None:
    assert decode(loads("[" * 200 + "]" * 200))
    with pytest.raises(TooDeep):
        loads("[" * 251 + "]" * 251)
    assert decode(loads(json.dumps("[" * 5000))) == "[" * 5000
    with pytest.raises(TooDeep):
        encode(nested(251))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_only_exact_types_of_our_own_are_encoded() -> None:
    class Always(int):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    for value in (Always(1), object(), bytearray(b"x"), len):
        with pytest.raises(Unplain, match="not plain data"):
            encode(value)


def test_long_text_keeps_both_ends() -> None:
    text = cap("a" * 5000 + "b" * 5000, 1200)
    assert text.startswith("a" * 800)
    assert text.endswith("b" * 400)
    assert "[8800 characters cut]" in text
    assert cap("short \ud800") == "short ?"
    for length in range(1201, 1260):  # nothing grows by being cut
        assert len(cap("x" * length, 1200)) <= length
