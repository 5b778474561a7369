"""Examples of docstrings in their many notations, and look-alikes that are none."""

from __future__ import annotations

import ast

import pytest

from agentloop.workloads.examples import find_examples


def found(text: str, *parameters: str) -> list[str]:
    return [ast.unparse(example) for example in find_examples(text, "fun", parameters or ("x",))]


@pytest.mark.parametrize(
    ("text", "examples"),
    [
        (">>> fun(1)\n2", ["fun(1) == 2"]),
        (">>> fun(1)\n\n>>> fun(2)\n'a'\n", ["fun(1) == None", "fun(2) == 'a'"]),
        (">>> fun([1])\n[1,\n 2]\n", ["fun([1]) == [1, 2]"]),
        (">>> fun('a\\nb')\n'c\\nd'", ["fun('a\\nb') == 'c\\nd'"]),
        (">>> round(fun([1]), 2)  # a comment\n-0.5", ["round(fun([1]), 2) == -0.5"]),
        (">>> fun(1) == 2\n>>> fun(2) == 3", ["fun(1) == 2", "fun(2) == 3"]),
        (">>> fun([1]) [2, 3]", ["fun([1]) == [2, 3]"]),
        (">>> fun(\n... 1)\n2", ["fun(1) == 2"]),
        ("fun(1) == 2", ["fun(1) == 2"]),
        ("fun(1) = 2", ["fun(1) == 2"]),
        ("* fun(1) => 2", ["fun(1) == 2"]),
        ("fun(1) ==> 2 \nfun(2)==>3", ["fun(1) == 2", "fun(2) == 3"]),
        ("fun(1) -> [2, 3]", ["fun(1) == [2, 3]"]),
        ("fun(1) ➞ 'a'", ["fun(1) == 'a'"]),
        ("fun(1) returns 'a'", ["fun(1) == 'a'"]),
        ('fun(1)   # returns "a"', ["fun(1) == 'a'"]),
        ("fun(1) # => 'No' (because it is so)", ["fun(1) == 'No'"]),
        ("fun(1) should return 16.", ["fun(1) == 16"]),
        ("fun(1) should return True.", ["fun(1) == True"]),
        ("For example fun(1) should\n    return 15 and fun(2) should return -15.", ["fun(1) == 15", "fun(2) == -15"]),
        ("fun(1) => true", ["fun(1) == True"]),
        ("fun(aabb) => False", ["fun('aabb') == False"]),
        ("fun(1) -> 19 - 5 - 6 = 8", ["fun(1) == 19 - 5 - 6"]),
        ("fun(1) == 1 + 9 = 10", ["fun(1) == 1 + 9"]),
        ("fun(1) returns [1, 5] # The sequence", ["fun(1) == [1, 5]"]),
        ('fun(["a"]) == ""aaa"', ["fun(['a']) == 'aaa'"]),
        ("fun([\n  [1],\n  [2]\n]) == 3", ["fun([[1], [2]]) == 3"]),
        ("for fun(1) == 2", ["fun(1) == 2"]),
        ("For x = [1,2] the output should be 6", ["fun([1, 2]) == 6"]),
        ('For x = 150, the sum of digits will be 6 the output should be "110".', ["fun(150) == '110'"]),
        ("Input: [4,2]\n    Output: [2, 1]\n    Explanation: 2 is it", ["fun([4, 2]) == [2, 1]"]),
        ("Input: x = 5\nOutput: 24 # sum", ["fun(5) == 24"]),
        ("x = [2, 1]\n  -> sort -> [1, 2]\nreturn ['One']", ["fun([2, 1]) == ['One']"]),
        ("x = []\nreturn = []", ["fun([]) == []"]),
        ("if you are given \"A\" then you should return 'B'", ["fun('A') == 'B'"]),
        ("other(1) => 2", ["fun(1) == 2"]),
    ],
)
def test_notations(text: str, examples: list[str]) -> None:
    assert found(text) == examples


@pytest.mark.parametrize(
    ("text", "examples"),
    [
        ('For x = "ab", y = "a", the result should be (\'b\',False)', ["fun('ab', 'a') == ('b', False)"]),
        ("Input: x = [1, 2], y = 4\nOutput: 24", ["fun([1, 2], 4) == 24"]),
        ("Input:\n   x : [[1]]\n   size : 1\nOutput: 6", ["fun([[1]], 1) == 6"]),
        ("x['+', '*']\nlist = [2, 3]\nresult = 2 + 3\n=> result = 5", ["fun(['+', '*'], [2, 3]) == 2 + 3"]),
        ("given \"S\" as the class and a list: ['a'] then return 'S.a'", ["fun('S', ['a']) == 'S.a'"]),
    ],
)
def test_notations_with_two_parameters(text: str, examples: list[str]) -> None:
    assert found(text, "x", "y") == examples


@pytest.mark.parametrize(
    "text",
    [
        "fun(n) == fun(n-1) + fun(n-2)",
        "fun(x) -> fun(1)",
        "fun(1) is a function",
        "ord('a') = 0, ord('b') = 1",
        "fun(1, 2) == 3",
        "fun(1)",
        "the function fun() returns the 2nd smallest",
        "fun(3) = fun(2) + fun(1)",
        "",
        "fun(" * 500,
        ">>> " * 500,
        "For x = " * 500,
    ],
)
def test_look_alikes(text: str) -> None:
    assert found(text) == []


def test_one_example_told_twice_comes_once() -> None:
    assert found("fun(1) == 2\n>>> fun(1)\n2\nfun(1) == 3") == ["fun(1) == 2", "fun(1) == 3"]


def test_another_name_counts_only_where_the_right_one_is_nowhere() -> None:
    assert found("gun(1) => 2\nfun(2) => 3") == ["fun(2) == 3"]
