"""Taking programs out of replies: a corpus of the ways in which replies have fooled other tools, and properties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.extract import extract
from agentloop.types import Problem, Suite
from tests.hostile_texts import CODE, REPLIES, STARTS, repeated

HELPER = "def poly(xs, x):\n    return sum(c * math.pow(x, i) for i, c in enumerate(xs))"
PRELUDE = f"import math\nfrom typing import List\n\n\n{HELPER}"
STUB = f'{PRELUDE}\n\n\ndef solve(xs: List[int]):\n    """Find a zero."""\n'
OTHER = "def solve(xs):\n    y = xs\n    return y[-1]\n"
BROKEN = "def solve(xs:\n    return 1\n"


def problem(**changes: object) -> Problem:
    fields: dict[str, object] = {
        "id": "p", "workload": "w", "statement": "s", "interface": "function", "visible": Suite("visible", ()),
        "hidden": Suite("hidden", ()), "entry_point": "solve",
    }  # fmt: skip
    return Problem(**(fields | changes))  # type: ignore[arg-type]


FUNCTION = problem()
STDIO = problem(interface="stdio", entry_point=None)
STUBBED = problem(prelude=PRELUDE, stub=STUB)

DOC = 'def solve(xs):\n    """\n```\nsolve([1])\n```\n    """\n    return 1\n'
GUARD = f"{CODE}\n# Example usage\nif __name__ == '__main__':\n    solve([1])\n"
GENERATOR = "import functools\n\n@functools.cache\ndef solve(xs):\n    yield 1\n"
LIST = "1. First:\n\n     ```python\n     def solve(xs):\n         return xs[0]\n     ```\n"
CUT = f"```python\n{CODE}\nprint(solve([1"
OTHER_NAME = "def longer_draft(xs):\n    return xs[0] + xs[1]\n"
RENAMED = "def answer(xs):\n    return 1\n"
END_OF_LINE = "```python\ndef solve(xs):\n    return xs[0]```\nThat is it."

# name: reply, rule, program
CORPUS = {
    "one fence": (f"Sure!\n\n```python\n{CODE}```\nIt works.", "fence", CODE),
    "no language": (f"```\n{CODE}```", "fence", CODE),
    "crlf": (f"```python\n{CODE}```".replace("\n", "\r\n"), "fence", CODE),
    "reply goes on from a prompt that opened the fence": (f"{CODE}```\nDone.", "before_fence", CODE),
    "and then shows a use in a fence": (f"{CODE}```\nUse:\n```python\nsolve([1])\n```", "before_fence", CODE),
    "code on the line of the opening fence": ("```def solve(xs):\n    return xs[0]\n```", "fence_glued", CODE),
    "language and code on that line": ("```python def solve(xs):\n    return xs[0]\n```", "fence_glued", CODE),
    "attributes are no code": (f'```python title="solve.py"\n{CODE}```', "fence", CODE),
    "a stray fence at the end": (f"```python\n{CODE}```\ntext\n```", "fence", CODE),
    "only a stray fence at the end": (f"{CODE}```", "before_fence", CODE),
    "prose, program, stray fence": (f"Here it is:\n\n{CODE}\n```", "region", CODE),
    "stray end of thinking": (f"```python\n{CODE}```\n</think>\nSo that is it.", "fence", CODE),
    "thinking with a draft": (f"<think>\n```python\n{OTHER}```\n</think>\n```python\n{CODE}```", "fence", CODE),
    "thinking twice": (f"<think>a</think>\n<thinking>\n{OTHER}</thinking>\n{CODE}", "whole", f"\n{CODE}"),
    "thinking that never ends": (f"<think>\n```python\n{CODE}```", "fence", CODE),
    "fence never closed": (f"Here:\n```python\n{CODE}", "fence_unclosed", CODE),
    "fence never closed, cut after the program": (CUT, "fence_unclosed_trimmed", f"{CODE}\n"),
    "begin and done": (f"[BEGIN]\n{CODE}[DONE]", "tag", CODE),
    "python tags": (f"Sure. [PYTHON]\n{CODE}[/PYTHON] ok", "tag", CODE),
    "code tags": (f"[code]\n{CODE}[/code]", "tag", CODE),
    "code tags around a fence": (f"[code]\n```python\n{CODE}```\n[/code]", "fence", CODE),
    "open tag": (f"[code]\n{CODE}", "tag_unclosed", CODE),
    "indented fence": (LIST, "fence", CODE),
    "a fence opened twice": (f"```python\nx = 1\n\nSo:\n```python\n{CODE}```", "fence_restarted", CODE),
    "five backticks": (f"`````python\n{CODE}`````", "fence", CODE),
    "tildes": (f"~~~ python\n{CODE}~~~~", "fence", CODE),
    "backticks inside tildes": (f"~~~\n{DOC}~~~", "fence", DOC),
    "backticks inside more backticks": (f"````python\n# ```\n{CODE}````", "fence", f"# ```\n{CODE}"),
    "fences inside a docstring": (f"```python\n{DOC}```", "fence_extended", DOC),
    "fence at the end of a code line": (END_OF_LINE, "fence_end_of_line", CODE),
    "fences in one line": ("Use ```solve = max``` here.", "fence_inline", "solve = max\n"),
    "no fence, program only": (CODE, "whole", CODE),
    "no fence, prose around": (f"The idea is simple.\n\n{CODE}\nThis works in O(1), see above.", "region", CODE),
    "indented code block": ("Here:\n\n    def solve(xs):\n        return xs[0]\n\nBye.", "region", CODE),
    "question repeated first": (f"```python\nassert solve([1]) == 1\n```\nSo:\n```python\n{CODE}```", "fence", CODE),
    "language inside the block": (f"```\npython\n{CODE}```", "fence", CODE),
    "several programs, the last counts": (f"```python\n{OTHER}```\nOr:\n```python\n{CODE}```", "fence", CODE),
    "a use after the program": (f"```python\n{CODE}```\nUse:\n```python\nprint(solve([1]))\n```", "fence", CODE),
    "sample output after it": (f"```python\n{CODE}```\nOutput:\n```\n5\n```", "fence", CODE),
    "another language beside it": (f"```cpp\nint solve() {{}}\n```\n```python\n{CODE}```", "fence", CODE),
    "terminal escapes": (f"\x1b[32m```python\x1b[0m\n{CODE}```\x1b[K", "fence", CODE),
    "comments and main guard stay": (f"```python\n{GUARD}```", "fence", GUARD),
    "decorators and generators stay": (f"```python\n{GENERATOR}```", "fence", GENERATOR),
    "does not parse: the compiler speaks": (f"Yes:\n```python\n{BROKEN}```\nBye.", "fence", BROKEN),
    "does not parse, another block does": (f"```python\nx = 1\n```\n```python\n{BROKEN}```", "fence", BROKEN),
    "does not parse, no fence": (f"I think:\n\n{BROKEN}", "region", BROKEN),
    "another name": (f"```python\n{OTHER_NAME}```\nBetter:\n```python\n{RENAMED}```", "fence", RENAMED),
}


@pytest.mark.parametrize(("reply", "rule", "code"), CORPUS.values(), ids=CORPUS.keys())
def test_corpus(reply: str, rule: str, code: str) -> None:
    found = extract(reply, FUNCTION)
    assert (found.rule, found.code, found.added) == (rule, code, ())


@pytest.mark.parametrize(
    ("reply", "finish", "detail"),
    [
        ("", "stop", "empty"),
        (" \n\t", "stop", "empty"),
        ("", "length", "truncated_reply"),
        ("First we have to think about", "length", "truncated_reply"),
        ("<think>Let me see", "length", "truncated_reply"),
        ("I'm sorry, but I can't help with that.", "stop", "refusal"),
        ("Some text", "content_filter", "refusal"),
        ("The answer is 42.", "stop", "prose"),
        ("<solution> 42 </solution>", "stop", "prose"),
        ("Output:\n```\n42 is it\n```", "stop", "prose"),
        ("```python\n```", "stop", "prose"),
    ],
)
def test_no_program_says_why(reply: str, finish: str, detail: str) -> None:
    found = extract(reply, FUNCTION, finish)
    assert (found.code, found.rule, found.detail) == (None, "none", detail)


@pytest.mark.parametrize(
    ("reply", "finish", "detail"),
    [
        (f"```python\n{CODE}", "stop", ""),
        (f"```python\n{CODE}", "length", ""),
        ("```python\ndef solve(xs):\n    return [", "length", "truncated_reply"),
        ("```python\ndef solve(xs):\n    return [", "stop", "truncated_reply"),
        (f"```python\n{BROKEN}```", "stop", ""),
    ],
)
def test_a_program_cut_short_is_flagged(reply: str, finish: str, detail: str) -> None:
    assert extract(reply, FUNCTION, finish).detail == detail


BODIES = {
    "indented": "    y = xs\n    return y\n",
    "first line lost its indentation": "y = xs\n    return y\n",
    "all lost it": "y = xs\nreturn y\n",
    "in a fence": "```python\n    y = xs\n    return y\n```",
    "goes on with something new": "    y = xs\n    return y\n\n\ndef other():\n    return (\n",
}


@pytest.mark.parametrize("reply", BODIES.values(), ids=BODIES.keys())
def test_a_body_goes_behind_the_stub(reply: str) -> None:
    found = extract(reply, STUBBED)
    assert found.rule == "body"
    assert found.code is not None
    assert found.code.rstrip() == f"{STUB}    y = xs\n    return y"
    assert found.added == ()


def test_a_body_cut_short_is_a_program_that_does_not_compile() -> None:
    found = extract("    y = xs\n    return [", STUBBED, "length")
    assert (found.rule, found.detail) == ("body_unparsed", "truncated_reply")
    assert found.code == f"{STUB}    y = xs\n    return [\n"


@pytest.mark.parametrize("reply", ["print(solve([1]))", "```python\nassert solve([1]) == 1\n```", "x = 1"])
def test_code_that_is_no_body_stays_what_it_is(reply: str) -> None:
    assert extract(reply, STUBBED).rule != "body"


def added(code: str) -> tuple[str | None, tuple[str, ...]]:
    found = extract(f"```python\n{code}```", STUBBED)
    return found.code, found.added


def test_what_the_statement_gives_and_the_program_lacks_is_put_before_it() -> None:
    assert added(CODE) == (CODE, ())
    assert added("def solve(xs: List):\n    return 1\n") == (
        "from typing import List\n\ndef solve(xs: List):\n    return 1\n", ("imports: List",),
    )  # fmt: skip
    code = "def solve(xs):\n    return poly(xs, 0)\n"
    assert added(code) == (f"import math\n{HELPER}\n\n{code}", ("imports: math", "helper: poly"))


@pytest.mark.parametrize(
    "code",
    [
        "import math\ndef solve(xs):\n    return math.pi\n",
        "from math import pi as math\ndef solve(xs):\n    return math\n",
        "def poly(xs, x):\n    return 0\n\ndef solve(xs):\n    return poly(xs, 0)\n",
        "try:\n    import math\nexcept ImportError:\n    math = None\ndef solve(xs):\n    return math\n",
    ],
)
def test_what_the_program_has_is_left_alone(code: str) -> None:
    assert added(code) == (code, ())


def test_a_body_too_gets_what_it_lacks() -> None:
    stub = 'def solve(xs):\n    """Doc."""\n'
    found = extract("```python\n    return poly(xs, 0)\n```", replace(STUBBED, stub=stub))
    assert found.rule == "body"
    assert found.code == f"import math\n{HELPER}\n\n{stub}    return poly(xs, 0)\n"
    assert found.added == ("imports: math", "helper: poly")


def test_nothing_stands_before_a_future_import() -> None:
    code = '"""Doc."""\nfrom __future__ import annotations\n\ndef solve(xs: List):\n    return 1\n'
    assert added(code)[0] == code.replace("annotations\n", "annotations\nfrom typing import List\n")


def test_tags_come_first_in_the_style_that_asks_for_them() -> None:
    reply = f"```python\n{OTHER}```\n[code]\n{CODE}[/code]"
    assert extract(reply, FUNCTION, tags_first=True).code == CODE
    assert extract(reply, FUNCTION).code == OTHER


READER = "n = int(input())\nprint(n)\n"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (f"```python\n{READER}```\nInput:\n```\n5\n```\nOutput:\n```\nprint the number five\n```", READER),
        (f"```\n5\n```\n```\n{READER}```", READER),
        (READER, READER),
        (f"```python\n{READER}```\n```python\nimport sys\nimport os\nimport math\nimport json\n```", READER),
    ],
)
def test_programs_on_stdin_and_stdout(reply: str, code: str) -> None:
    assert extract(reply, STDIO).code == code


def test_other_languages_are_chosen_by_their_tag() -> None:
    cpp = problem(interface="stdio", entry_point=None, language="cpp")
    reply = "```python\nprint('a long program in another language')\n```\n```cpp\nint main() {}\n```"
    assert extract(reply, cpp).code == "int main() {}\n"


MAINS = {
    "c": '#include <stdio.h>\nint main(void) { puts("a"); }\n',
    "cpp": "#include <iostream>\nusing namespace std;\nint main() { cout << 1; }\n",
    "java": "import java.util.*;\n\npublic class A {\n    public static void main(String[] a) { }\n}\n",
    "rust": 'use std::io;\n\nfn main() {\n    println!("a");\n}\n',
}
WORDS = {"c": ("c", "C"), "cpp": ("cpp", "c++", "C++"), "java": ("java", "Java"), "rust": ("rust", "rs")}


@pytest.mark.parametrize("language", MAINS)
def test_programs_in_other_languages(language: str) -> None:
    one, code = problem(interface="stdio", entry_point=None, language=language), MAINS[language]
    for word in WORDS[language]:
        assert extract(f"So:\n```{word}\n{code}```\nDone.", one).code == code
    part = "x" * 200
    for reply, rule in (
        (f"```\n{code}```\nIt prints:\n```\na\n```", "fence"),
        (f"```{language}\n// first a part\n{part}\n```\nThe whole:\n```{language}\n{code}```", "fence"),
        (f"```{language}\n{code}```\nRun it:\n```sh\n./main < {part}\n```", "fence"),
        (f"```\n{language}\n{code}```", "fence"),
        (f"[code]\n{code}[/code]", "tag"),
        (f"```{language}\n{code}", "fence_unclosed"),
        (f"Here it is.\n\n{code}\nThat was it.", "region"),
        (code, "region"),
    ):
        found = extract(reply, one)
        assert (found.code, found.rule, found.detail) == (code, rule, ""), reply
    assert extract(f"```{language}\n{code}", one, "length").detail == "truncated_reply"
    assert extract("It cannot be done.", one).code is None
    assert extract("```python\nprint(1)\n```", one).code is None


@pytest.mark.parametrize("unit", REPLIES.values(), ids=REPLIES.keys())
@pytest.mark.parametrize("start", STARTS)
def test_any_reply_of_200000_characters_comes_to_an_end(unit: str, start: str) -> None:
    found = extract(repeated(unit, 200_000, start), STUBBED)  # how soon: benchmarks/hostile_texts.py
    assert (found.code is None) == (found.rule == "none")


PIECES = st.sampled_from(
    ["```", "````", "~~~", "python", "\n", "\n\n", "    ", "def solve(xs):", "return", "[code]", "[/code]", "<think>",
     "</think>", "import math", "(", '"""', "x = 1", "\x1b[0m", "\r\n", "Sure, here:", "[BEGIN]", "\ud800", "\0"]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=5), max_size=40), st.sampled_from(["stop", "length"]))
def test_never_raises(pieces: list[str], finish: str) -> None:
    for each in (FUNCTION, STUBBED, STDIO):
        found = extract("".join(pieces), each, finish)
        assert (found.code is None) == (found.rule == "none")
        assert found.code is None or found.code.strip()


NAMES = st.sampled_from(["a", "xs", "solve_more", "_tmp"])
VALUES = (
    st.integers() | st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=20) | st.booleans()
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Programs that define the entry point, with whatever text in strings and comments."""
    lines = ["def solve(xs):"]
    lines += [f"    {draw(NAMES)} = {draw(VALUES)!r}" for _ in range(draw(st.integers(0, 4)))]
    lines += ["    return xs"]
    before = [f"{draw(NAMES)} = {draw(VALUES)!r}" for _ in range(draw(st.integers(0, 3)))]
    after = [f"# {draw(st.text(st.characters(codec='ascii', categories=('L', 'N', 'P', 'Zs'))))}"]
    return "\n".join([*before, *lines, *after]) + "\n"


@settings(max_examples=200)
@given(
    programs(),
    st.sampled_from(["`", "~"]),
    st.sampled_from(["", "python", "py"]),
    st.sampled_from(["", "Sure, here it is.\n\n"]),
)
def test_a_fenced_program_comes_back_unchanged(program: str, char: str, tag: str, before: str) -> None:
    fence = char * 3
    while fence in program:
        fence += char
    assert extract(f"{before}{fence}{tag}\n{program}{fence}\n", FUNCTION).code == program
