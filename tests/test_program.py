"""Identity of programs and failures, also of hostile text."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.lexer import tokens
from agentloop.program import ast_digest, failure_signature, parse
from agentloop.types import SuiteVerdict, TestVerdict
from tests.hostile_texts import LEXEMES, SOURCES, repeated

SOURCE = "def f(x, y=1):\n    return x + y  # sum\n"


@pytest.mark.parametrize(
    "other",
    [
        "def f(x,y=1) :\n\n\n  return x+y\n",
        "# head\ndef f(x, y=1):\n    return (x + y)",
        "def f(x, y=0x1):\n\treturn x + y\n",
    ],
)
def test_white_space_and_comments_do_not_make_another_program(other: str) -> None:
    assert ast_digest(other, "python") == ast_digest(SOURCE, "python")


@pytest.mark.parametrize(
    "other",
    [
        "def f(x, y=2):\n    return x + y\n",
        "def f(x, y=1.0):\n    return x + y\n",
        "def f(x, y=True):\n    return x + y\n",
        "def f(x, y='1'):\n    return x + y\n",
        "def f(x, *, y=1):\n    return x + y\n",
        "def f(x, y=1):\n    return x - y\n",
        "def f(x, y=1):\n    return x + y\nf\n",
    ],
)
def test_another_meaning_is_another_program(other: str) -> None:
    assert ast_digest(other, "python") != ast_digest(SOURCE, "python")


def test_the_digest_is_the_same_in_every_version_of_python() -> None:
    assert ast_digest(SOURCE, "python") == "ast:03766c520f22d82899a9305f057839567c7b4ee2d78b7847b6ac15e82a22a32a"


def test_fields_and_lists_do_not_run_into_each_other() -> None:
    assert ast_digest("f([a], b)", "python") != ast_digest("f([a, b])", "python")
    assert ast_digest("x: int", "python") != ast_digest("x = int", "python")


def test_other_languages_are_compared_by_their_tokens() -> None:
    one = '#include <map>\n#define A 1\nint main(){auto s="/* no comment */";char c=\'"\';return a&&b;} // end'
    other = '  #include   <map>\n#define A 1\n\n/* a\nb */ int main ( ) {\n  auto s = "/* no comment */";\n'
    other += "  char c = '\"';\n  return a && b;\n}\n"
    assert ast_digest(one, "cpp") == ast_digest(other, "cpp")
    assert ast_digest(one, "cpp").startswith("tokens:")
    for old, new in (("no comment", "no  comment"), ("a&&b", "a& &b"), ("int main", "intmain"), ("A 1\n", "A 1 ")):
        assert ast_digest(one, "cpp") != ast_digest(one.replace(old, new), "cpp")
    raw = "fn f<'a>(x: &'a str) -> char { let s = r#\"a // \"b\"#; '\\'' }"
    assert list(tokens(raw)) == [
        "fn", "f", "<", "'", "a", ">", "(", "x", ":", "&", "'", "a", "str", ")", "->", "char", "{", "let", "s", "=",
        'r#"a // "b"#', ";", "'\\''", "}",
    ]  # fmt: skip


@pytest.mark.parametrize("unit", LEXEMES)
def test_tokens_of_any_text_come_out_of_it_in_order(unit: str) -> None:
    text, position = repeated(unit, 300_000), 0
    solid = "".join(text.split())
    for token in tokens(text):
        part = "".join(token.split())
        position = solid.index(part, position) + len(part)


def test_broken_text_is_compared_as_text() -> None:
    assert ast_digest("def f(:\n", "python") == ast_digest("def f(:  \n\n", "python")
    assert ast_digest("def f(:\n", "python").startswith("text:")
    assert ast_digest("x", "cpp") != ast_digest("x", "python")


@pytest.mark.parametrize(("start", "unit", "end"), SOURCES.values(), ids=SOURCES.keys())
def test_source_that_no_parser_should_be_given_is_compared_as_text(start: str, unit: str, end: str) -> None:
    source = repeated(unit, 200_000, start, end)
    assert ast_digest(source, "python").startswith("text:") or source.isspace()


@given(st.text())
def test_any_text_has_a_digest(text: str) -> None:
    assert ast_digest(text, "python") == ast_digest(text, "python")


def test_the_answer_does_not_depend_on_the_depth_of_the_stack() -> None:
    source = "x = " + "+".join(["1"] * 390)

    def deeper(levels: int) -> str:
        return deeper(levels - 1) if levels else ast_digest(source, "python")

    assert deeper(0).startswith("ast:")
    assert deeper(sys.getrecursionlimit() // 2) == deeper(0)


def test_no_warning_of_a_model_program_is_shown() -> None:
    assert parse("x = '\\d'") is not None


def verdict(outcome: str, detail: str, got: str, test: str = "v1") -> SuiteVerdict:
    first = TestVerdict(test, outcome, detail, got)  # type: ignore[arg-type]
    return SuiteVerdict("visible", outcome, detail, 0, 1, (first,))  # type: ignore[arg-type]


def test_failing_the_same_way() -> None:
    trace = 'Traceback:\n  File "main.py", line {}, in f\n    x[0]\nIndexError: list index out of range'
    same = failure_signature(verdict("runtime_error", "IndexError", trace.format(3)))
    assert failure_signature(verdict("runtime_error", "IndexError", trace.format(7))) == same
    assert failure_signature(verdict("runtime_error", "IndexError", trace.format(3), "v2")) != same
    assert failure_signature(verdict("failed", "", "<f at 0x7f11>")) == failure_signature(
        verdict("failed", "", "<f at 0x8e22>")
    )
    assert failure_signature(verdict("failed", "", "1")) != failure_signature(verdict("failed", "", "2"))
    assert failure_signature(verdict("passed", "", "")) == "passed"
