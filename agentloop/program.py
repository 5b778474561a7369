"""Identity of programs and of failures: is this candidate the one before, does it fail the same way?

Programs come from models: whatever text it is, nothing here raises, runs code or recurses without bound.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from functools import lru_cache

from agentloop.hashing import text_digest
from agentloop.lexer import tokens
from agentloop.types import SuiteVerdict

MAX_COST = 400_000
"""Dearest source that is parsed (see `parse_cost`): about 0.3 s of CPU."""
MAX_NESTING = 90
"""Most open brackets at once in source that is parsed: CPython's own limit is 200."""
MAX_TREE = 400
"""Deepest tree (long chains of operators or elif branches are deep trees) that is read."""

# Strings, comments and all that is no bracket. Possessive, and content with an end of text for an end: linear in time.
_NO_BRACKETS = re.compile(
    r'''"""(?:[^\\"]|\\.|"(?!""))*+(?:""")?|"(?:[^"\\\n]|\\.)*+"?|#[^\n]*|[^\[\](){}"'#]++'''
    r"""|'''(?:[^\\']|\\.|'(?!''))*+(?:''')?|'(?:[^'\\\n]|\\.)*+'?""",
    re.DOTALL,
)


def parse_cost(source: str) -> int:
    """What parsing would cost at most, in units of about 0.7 microseconds: length, and the parts that make nodes."""
    return len(source) + 15 * sum(map(source.count, "\n;,"))


def parse(source: str) -> ast.Module | None:
    """The tree of Python source; None when it does not parse, or is too long, too deep or too strange to be read.

    Two calls with one source give one answer, whatever the depth of the stack they are made from.
    """
    if parse_cost(source) > MAX_COST or _nesting(source) > MAX_NESTING:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "invalid escape sequence" of a model's program is not ours to show
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _depth(tree) <= MAX_TREE else None


@lru_cache(maxsize=512)  # strategies share first programs, and loops repeat them
def ast_digest(source: str, language: str) -> str:
    """Identity of a program: equal for two programs that differ in comments and white space only.

    `ast:HEX` for Python that parses, `text:HEX` of the text without white space at line ends and empty lines for Python
    that does not, `tokens:HEX` for other languages.
    """
    if language != "python":
        return "tokens:" + text_digest("\n".join(tokens(source)))
    tree = parse(source)
    if tree is not None:
        return f"ast:{_tree_digest(tree)}"
    lines = [line.rstrip() for line in source.splitlines()]
    text = "\n".join(line for line in lines if line)
    return f"text:{text_digest(text)}"


def failure_signature(verdict: SuiteVerdict) -> str:
    """Two candidates with one signature fail the same way: outcome, detail, first failing test and what came out.

    Of an error only the last line of the traceback counts, and memory addresses do not.
    """
    first = next((test for test in verdict.tests if test.outcome != "passed"), None)
    if first is None:
        return "passed"
    got = first.got
    if first.outcome in ("compile_error", "runtime_error"):
        got = got.rstrip().rpartition("\n")[2]
    digest = text_digest(re.sub(r"0x[0-9a-fA-F]+", "0x", got))[:16]
    return f"{first.outcome}:{first.detail}:{first.test}:{digest}"


def _nesting(source: str) -> int:
    """Most brackets open at once. Strings and comments are skipped; in text that is no Python the count may be off."""
    depth = deepest = 0
    for char in _NO_BRACKETS.sub("", source):
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}":
            depth = max(0, depth - 1)
    return deepest


def _depth(tree: ast.AST) -> int:
    level = [tree]
    depth = 0
    while level and depth <= MAX_TREE:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


def _tree_digest(tree: ast.AST) -> str:
    """A digest of types, fields and constants in one fixed order; each list tells its length, so no two trees mix.

    Empty fields are left out: newer versions of Python add some (`type_params`), and the digest is to stay the same.
    """
    digest = hashlib.sha256()
    stack: list[object] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.AST):
            digest.update(f"({type(node).__name__}".encode())
            named = [(name, value) for name, value in ast.iter_fields(node) if name != "kind"]  # u"" and "" are one
            full = [(name, value) for name, value in named if value is not None and value != []]
            for name, value in reversed(full):
                stack += [value, name]
            stack.append(len(full))
        elif isinstance(node, list):
            digest.update(f"[{len(node)}".encode())
            stack.extend(reversed(node))
        else:
            text = hex(node) if type(node) is int else repr(node)  # decimal digits of a huge int may not be printed
            digest.update(f"{type(node).__name__}:{len(text)}:{text}".encode(errors="surrogatepass"))
    return digest.hexdigest()
