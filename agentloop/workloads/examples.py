"""Examples in a docstring, in whatever notation: each becomes an expression `call == value`.

Found are doctests (`>>> f(1)` and the lines after it, also `>>> f(1) == 2`), calls followed by a sign or word that
means "gives" (`f(1) == 2`, `=> 2`, `-> 2`, `returns 2`, `should return 2`, ...), sentences such as "For x = 1 the
output should be 2", Input/Output pairs, and assignments to the parameters followed by a result. Values are literals and
simple arithmetic; nothing is run. Text that only looks like an example (a recurrence `f(n) == f(n-1)`) has no literal
values and is passed over.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence

from agentloop.workloads.literals import NotLiteral, evaluate

_GIVES = re.compile(
    r"[ \t]*(?:#[ \t]*)?(==>|-->|=>|->|==|=|➞|→|➡|⇒|should\s+(?:return|be|give|output)\b|"
    r"(?:returns?|gives?|is|outputs?)\b)[ \t]*"
)
_CALL = re.compile(r"\b([A-Za-z_]\w*)\(")
_SENTENCE = re.compile(r"\bFor[ \t]+(?=\w+[ \t]*=)")
_RESULT = re.compile(r"\b(?:output|result|answer)\s+should\s+be\s+")
_INPUT = re.compile(r"\bInputs?[ \t]*:\s*")
_OUTPUT = re.compile(r"\s*\bOutputs?[ \t]*:\s*")
_NAMED = re.compile(r"[\s,]*(?:([A-Za-z_]\w*)[ \t]*([=:])[ \t]*)?")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)[ \t]*=?[ \t]*")
_RETURNED = re.compile(r"(?:=>[ \t]*)?(?:return|result|output)\b[ \t]*=?[ \t]*")
_GIVEN = re.compile(r"\bgiven\b(?=[^.]*[\"'\[])")
_AFTER_VALUE = re.compile(r"$|[\s.,;:#=)]")
_LONGEST = 600
"""Characters that a call or a value may span."""
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def find_examples(text: str, function: str, parameters: Sequence[str]) -> list[ast.expr]:
    """The examples in a docstring's source text, in the order of the text, each as a comparison `call == value`.

    `text` is the source: a line end inside a string is the two characters that the reader sees. One example told twice
    comes once.
    """
    finder = _Finder(text, function, parameters)
    found = sorted(finder.find(), key=lambda item: item[0])
    unique = {ast.unparse(expression): expression for _, expression in found}
    return list(unique.values())


class _Finder:
    def __init__(self, text: str, function: str, parameters: Sequence[str]) -> None:
        self.text, self.function, self.parameters = text, function, list(parameters)

    def find(self) -> Iterator[tuple[int, ast.expr]]:
        """`(position, comparison)` of every example; a position comes once."""
        found = dict(self.doctests())
        doctested = [line.span() for line in re.finditer(r"^[ \t]*(?:>>>|\.\.\.).*$", self.text, re.MULTILINE)]
        calls = [
            (start, name, comparison)
            for start, name, comparison in self.calls()
            if not any(low <= start < high for low, high in doctested)
        ]
        own = {start: comparison for start, name, comparison in calls if name.lower() in self.function.lower()}
        # A docstring may have another name (`list_sort` for `sorted_list_sum`): taken if the right one is nowhere.
        found |= own or ({} if found else {start: comparison for start, _, comparison in calls})
        for source in (self.sentences, self.pairs, self.assignments, self.given):
            found |= dict(source())
        yield from found.items()

    def doctests(self) -> Iterator[tuple[int, ast.expr]]:
        for prompt in re.finditer(r"^[ \t]*>>>[ \t]*(.*(?:\n[ \t]*\.\.\..*)*)", self.text, re.MULTILINE):
            source = re.sub(r"\n[ \t]*\.\.\.", "\n", prompt[1])
            after = re.match(r"(?:\n(?![ \t]*>>>)[ \t]*\S.*)*", self.text[prompt.end() :])
            expected = " ".join(after[0].split("\n")) if after else ""
            expression = _parse(source)
            if isinstance(expression, ast.Compare):  # `>>> f(1) == 2` is meant as a statement, its True is left out
                yield prompt.start(1), expression
            elif isinstance(expression, ast.Call):
                value = _value(expected.strip() or "None")
                if value is not None:
                    yield prompt.start(1), _equal(expression, value[0])
            else:  # `>>> f(1) [2]`: the sign was forgotten
                call = self.call_at(source, 0)
                value = _value(source[call[1] :].lstrip()) if call else None
                if call and value:
                    yield prompt.start(1), _equal(call[0], value[0])

    def calls(self) -> Iterator[tuple[int, str, ast.expr]]:
        for match in _CALL.finditer(self.text):
            if match[1] != self.function and hasattr(builtins, match[1]):
                continue  # `ord('a') = 0` explains a builtin
            call = self.call_at(self.text, match.start())
            sign = _GIVES.match(self.text, call[1]) if call else None
            value = _value(self.text[sign.end() : sign.end() + _LONGEST].partition("\n")[0]) if sign else None
            if call and value:
                yield match.start(), match[1], _equal(call[0], value[0])

    def call_at(self, text: str, start: int) -> tuple[ast.expr, int] | None:
        """The call that starts here, renamed to the function, and where it ends."""
        match = _CALL.match(text, start)
        for close in re.finditer(r"\)", text[start : start + _LONGEST]) if match else ():
            call = _parse(text[start : start + close.end()])
            if isinstance(call, ast.Call):
                args = [self.argument(arg) for arg in call.args]
                if len(args) + len(call.keywords) != len(self.parameters) or None in args:
                    return None
                call.args = [arg for arg in args if arg is not None]
                call.func = ast.Name(self.function, ast.Load())
                return call, start + close.end()
        return None

    def argument(self, node: ast.expr) -> ast.expr | None:
        """An argument that is a value; a bare word such as `is_happy(abcd)` stands for the string."""
        if isinstance(node, ast.Name) and node.id not in self.parameters:
            return ast.Constant(_WORDS.get(node.id, node.id))
        try:
            evaluate(node)
        except NotLiteral:
            return None
        return node

    def sentences(self) -> Iterator[tuple[int, ast.expr]]:
        for match in _SENTENCE.finditer(self.text):
            line = self.text[match.end() :].partition("\n")[0]
            result = _RESULT.search(line)
            if result:
                yield from self.example(match.start(), line[: result.start()], line[result.end() :])

    def pairs(self) -> Iterator[tuple[int, ast.expr]]:
        for match in _INPUT.finditer(self.text):
            output = _OUTPUT.search(self.text, match.end(), match.end() + _LONGEST)
            if output:
                result = self.text[output.end() :].partition("\n")[0]
                yield from self.example(match.start(), self.text[match.end() : output.start()], result)

    def assignments(self) -> Iterator[tuple[int, ast.expr]]:
        """`arr = [2, 1]`, perhaps steps on the way, then `return [1, 2]`."""
        lines = [(line.start(), line[0].strip()) for line in re.finditer(r"^.*$", self.text, re.MULTILINE)]
        count = len(self.parameters)
        for index, (start, line) in enumerate(lines):
            first = _ASSIGNED.match(line)
            if not first or first[1] != self.parameters[0] or line[first.end() :][:1] not in tuple("[({\"'-0123456789"):
                continue
            values = []
            for _, each in lines[index : index + count]:
                name = _ASSIGNED.match(each)
                value = _value(each[name.end() :]) if name else None
                values += [value[0]] if value else []
            for _, each in lines[index + count : index + count + 4]:
                result = _RETURNED.match(each)
                value = _value(each[result.end() :]) if result else None
                if value and len(values) == count:
                    yield start, self.comparison(values, value[0])
                    break

    def given(self) -> Iterator[tuple[int, ast.expr]]:
        """ "if you are given "A" and a list: ['B'] then you should return 'C'": as many values as parameters."""
        for match in _GIVEN.finditer(self.text):
            head, word, tail = self.text[match.end() : match.end() + _LONGEST].partition("return ")
            values = []
            at = 0
            while word and (opening := re.compile(r"[\"'\[({]").search(head, at)):
                value = _value(head[opening.start() :])
                values += [value[0]] if value else []
                at = opening.start() + (value[1] if value else 1)
            result = _value(tail)
            if result and len(values) == len(self.parameters):
                yield match.start(), self.comparison(values, result[0])

    def example(self, start: int, given: str, result: str) -> Iterator[tuple[int, ast.expr]]:
        """Values, perhaps named (`x = 1, y = 2` or `grid : [[1]]`), in the order of the parameters."""
        values: list[ast.expr] = []
        at = 0
        while len(values) < len(self.parameters):
            name = _NAMED.match(given, at)
            at = name.end() if name else at
            value = _value(given[at:])
            if not value:
                return
            values.append(value[0])
            at += value[1]
        got = _value(result)
        if got:
            yield start, self.comparison(values, got[0])

    def comparison(self, values: list[ast.expr], result: ast.expr) -> ast.expr:
        return _equal(ast.Call(ast.Name(self.function, ast.Load()), values, []), result)


def _equal(left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.fix_missing_locations(ast.Compare(left, [ast.Eq()], [right]))


def _parse(source: str) -> ast.expr | None:
    try:
        return ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(text: str) -> tuple[ast.expr, int] | None:
    """The longest literal at the start of a text, and its length: `True` of "True.", `[2]` of "[2] # why"."""
    text = text[:_LONGEST]
    ends = [match.start() for match in _AFTER_VALUE.finditer(text)]
    for end in reversed(ends):
        # "1," would be a tuple, and "16." at the end of a sentence a float.
        source = text[:end].rstrip()
        if not source or source[-1] in ",." or source.count("\n") > 20:
            continue
        node = _parse(source)
        if isinstance(node, ast.Name):
            node = ast.Constant(_WORDS[node.id.lower()]) if node.id.lower() in _WORDS else None
        if node is not None:
            try:
                evaluate(node)
            except NotLiteral:
                continue
            return node, len(source)
    if text.startswith(('""', "''")) and not text.startswith(('"""', "'''")):  # a quote typed twice
        inner = _value(text[1:])
        return (inner[0], inner[1] + 1) if inner else None
    return None
