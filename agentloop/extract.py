"""The program in a reply. An ordered list of rules, each named in the result; the program itself is never edited.

1. Clean: escape codes, CR line ends, leading `<think>` sections.
2. Marked blocks: fences, then tags (`[code]`); `tags_first`: the other way round. Of several blocks the last one that
   defines the entry point and parses (in 119 stored replies with several such blocks that differ, the last passed the
   tests 47 times, the longest 37 times and never when the last failed); without an entry point the longest one that
   reads input, else the longest. One that defines the entry point and does not parse is taken as it is, so that the
   compiler can speak.
3. No such block: the whole reply if it is the program, else the largest run of lines that is.
4. A body without its `def` goes behind the problem's stub.
5. Else a `def` of the entry point that does not parse, or a marked block without it, is taken as it is.
   Programs in other languages than Python are chosen by tag and `main`: see `agentloop.extract_compiled`.
6. Imports and helpers of the statement that the program uses and lacks are put before it, and listed.

Parsing is bounded by a budget, so any reply takes linear time; see `agentloop.program.parse`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from agentloop.blocks import PYTHON, Block, clean, extended, fenced, is_code_line, regions, tagged
from agentloop.extract_compiled import choose
from agentloop.program import parse, parse_cost
from agentloop.types import Extraction, Problem

BUDGET, ATTEMPTS = 60_000, 40
"""What all parsing of one reply may cost, in `parse_cost`'s units (about 40 ms at most, some 15 ms for usual code), and
how many texts are parsed."""
_PYTHON_TAGS = frozenset({*PYTHON, "py3", "python-repl", "pycon", ""})
_LEAVES = re.compile(r"^[ \t]*(?:return|yield|raise)\b", re.MULTILINE)
_READS = re.compile(r"\binput\(|\bstdin\b|\bopen\(0")
_REFUSAL = re.compile(
    r"\b(?:i\W?m sorry|i am sorry|i apologi[sz]e|i cannot|i can\W?t|i won\W?t|as an ai|"
    r"(?:un|not )able to (?:help|assist|provide|comply))\b",
    re.IGNORECASE,
)


def extract(reply: str, problem: Problem, finish_reason: str = "stop", *, tags_first: bool = False) -> Extraction:
    """Take the program out of a reply. Never raises, whatever the reply is.

    `tags_first`: where a reply has tags and fences, tags count. `finish_reason` as the provider gave it ("length": cut
    by the token limit). `code` None says that nothing was found: `detail` is then "empty", "refusal",
    "truncated_reply" or "prose". With a program, `detail` "truncated_reply" says that its block was never closed and it
    is not whole.
    """
    text = clean(reply)
    finder = _Finder(problem)
    choice = finder.find(text, tags_first) if text.strip() else None
    if choice is None:
        return Extraction(None, "none", _why_none(text, finish_reason))
    tree = None
    if problem.language == "python":
        tree = finder.tree(choice.code)
        broken = tree is None and choice.code not in finder.unread
        cut = broken and (finish_reason == "length" or not choice.closed)
    else:  # nothing here parses it
        cut = finish_reason == "length" and not choice.closed
    added: tuple[str, ...] = ()
    code = choice.code
    if tree is not None and problem.prelude:
        code, added = with_prelude(code, tree, problem.prelude)
    return Extraction(code, choice.rule, "truncated_reply" if cut else "", added)


def _why_none(text: str, finish_reason: str) -> str:
    if finish_reason == "content_filter":
        return "refusal"
    if finish_reason == "length":
        return "truncated_reply"
    if not text.strip():
        return "empty"
    return "refusal" if _REFUSAL.search(text[:400]) else "prose"


@dataclass
class _Finder:
    problem: Problem
    budget: int = BUDGET
    trees: dict[str, ast.Module | None] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    """Sources that the budget did not allow to parse."""

    def find(self, text: str, tags_first: bool) -> Block | None:
        fences, tags = fenced(text), tagged(text)
        marked = tags or fences if tags_first else fences or tags
        if self.problem.language != "python":
            return choose(marked, text, self.problem.language)
        best = self.best(marked) or self.best([*tags, *fences])
        best = best or self.best(extended(text)) or self.best(map(self.trimmed, fences))
        broken = [block for block in marked if self.has_def(block.code) and block.rule != "before_fence"]
        if best or broken:
            return best or max(broken, key=lambda block: len(block.code))
        best = (
            self.best([Block(text, "whole")]) or self.best(regions(text)) or self.body([*marked, Block(text, "whole")])
        )
        if best:
            return best
        loose = [*regions(text), Block(text, "unparsed")]
        broken = [block for block in loose if self.has_def(block.code)]
        coded = [block for block in marked if self.is_code(block)]
        return (
            next(iter(broken), None)
            or max(coded, key=self.guess, default=None)
            or self.broken_body(text)
            or self.unnamed(loose)
        )

    def tree(self, code: str) -> ast.Module | None:
        """The tree of a source; None when it does not parse or the budget is used up."""
        if code not in self.trees and code not in self.unread:
            cost = parse_cost(code)
            if cost > self.budget or len(self.trees) >= ATTEMPTS:
                self.unread.add(code)
            else:
                self.budget -= cost
                self.trees[code] = parse(code)
        return self.trees.get(code)

    def best(self, blocks: Iterable[Block]) -> Block | None:
        """The first block that is a program for the problem."""
        if self.problem.entry_point is None:
            blocks = sorted(blocks, key=lambda block: (_READS.search(block.code) is None, -len(block.code)))
        return next((block for block in blocks if self.is_program(block)), None)

    def is_program(self, block: Block) -> bool:
        entry = self.problem.entry_point
        tree = self.tree(block.code)
        if tree is None:  # too dear to parse: what the text shows must do
            return block.code in self.unread and block.closed and self.has_def(block.code)
        return entry in bound_names(tree) if entry is not None else _does_something(tree)

    def has_def(self, code: str) -> bool:
        entry = self.problem.entry_point
        return (
            entry is not None
            and re.search(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{re.escape(entry)}\b", code, re.M) is not None
        )

    def trimmed(self, block: Block) -> Block:
        """An unclosed block without its last, unfinished statement of the top level."""
        if block.closed:
            return block
        end = block.code.rfind("\n")
        while end > 0 and block.code[end + 1 : end + 2] in (" ", "\t", "\n", "#", ")", "]", "}", ""):
            end = block.code.rfind("\n", 0, end)
        return Block(block.code[: end + 1], "fence_unclosed_trimmed", block.tag)

    def body(self, blocks: Iterable[Block]) -> Block | None:
        """The stub with a body behind it: indented, or with the indentation lost everywhere or on the first line."""
        stub = self.problem.stub
        for block in blocks if stub else ():
            code = block.code.strip("\n") + "\n"
            if parse_cost(code) > self.budget:
                continue
            indented = code[:1] in (" ", "\t")
            tree = None if indented else self.tree(code)
            if tree is not None and not _returns(tree):
                continue  # top-level code of its own, such as an example call
            shifted = "".join(f"    {line}" if line.strip() else line for line in code.splitlines(keepends=True))
            for body in [code, _first_run(code)] if indented else [f"    {code}", _first_run(f"    {code}"), shifted]:
                whole = stub.rstrip("\n") + "\n" + body
                tree = self.tree(whole) if indented or _LEAVES.search(body) else None
                if tree is not None and not _returns(tree):
                    return Block(whole, "body", block.tag, block.closed)
        return None

    def broken_body(self, text: str) -> Block | None:
        """An indented body that does not parse, such as one cut by the token limit."""
        body = _first_run(text.strip("\n") + "\n")
        if not self.problem.stub or not is_code_line(body.split("\n")[0].strip()):
            return None
        return Block(self.problem.stub.rstrip("\n") + "\n" + body, "body_unparsed", closed=False)

    def is_code(self, block: Block) -> bool:
        """Whether a marked block without the entry point is code at all, and no sample output or answer in words."""
        tree = self.tree(block.code)
        if tree is not None:
            return _does_something(tree)
        lines = [line for line in block.code.split("\n", 200)[:200] if line.strip()]
        return block.tag in PYTHON or 2 * sum(map(is_code_line, map(str.strip, lines))) >= len(lines)

    def guess(self, block: Block) -> tuple[bool, bool, bool]:
        """How likely a block that lacks the entry point is meant to be the program; of equals the last one counts."""
        plain = block.rule in ("fence", "fence_unclosed", "tag", "tag_unclosed")
        return plain, block.tag in _PYTHON_TAGS, "def " in block.code

    def unnamed(self, blocks: list[Block]) -> Block | None:
        """Code without a mark that does not define the entry point, such as a function under another name."""
        return next((block for block in blocks if self.tree(block.code) and "def " in block.code), None)


def _does_something(tree: ast.Module) -> bool:
    """Whether there is a statement that is more than a bare value, as sample output would be."""
    return any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in tree.body)


def _returns(tree: ast.Module) -> bool:
    """Whether a `return` stands outside a function, which parses and does not compile."""
    return any(isinstance(node, ast.Return) for node in tree.body)


def _first_run(code: str) -> str:
    """The lines up to the first one that is not indented: where a completion model began something new."""
    end = re.search(r"^(?=\S)", code, re.M)
    return code[: end.start()] if end else code


def bound_names(tree: ast.Module) -> set[str]:
    """Names that a module binds at its top level, also inside `if`, `try`, `with` and loops; not inside functions."""
    names: set[str] = set()
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
                continue
            case ast.Import() | ast.ImportFrom():
                names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
            case ast.Name(id, ast.Store()):
                names.add(id)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                continue
        todo.extend(ast.iter_child_nodes(node))
    return names


def with_prelude(code: str, tree: ast.Module, prelude: str) -> tuple[str, tuple[str, ...]]:
    """The program with what it uses and lacks of the prelude before it, and what that was ("imports: math").

    Only what the program names is added: a helper of the statement that the program defines itself stays its own.
    """
    source = parse(prelude)
    if source is None:
        return code, ()
    bound, wanted = bound_names(tree), _used(tree)
    chosen: set[int] = set()
    for index in reversed(range(len(source.body))):  # a later helper may use earlier ones
        statement = source.body[index]
        names = bound_names(ast.Module([statement], []))
        if names & wanted - bound:
            chosen.add(index)
            wanted |= _used(statement)
    if not chosen:
        return code, ()
    lines = prelude.splitlines()
    parts, added = [], []
    for index in sorted(chosen):
        statement = source.body[index]
        decorators = getattr(statement, "decorator_list", [])
        start = min([statement.lineno, *(node.lineno for node in decorators)])
        parts.append("\n".join(lines[start - 1 : statement.end_lineno]))
        label = "imports" if isinstance(statement, ast.Import | ast.ImportFrom) else "helper"
        added.append(f"{label}: {', '.join(sorted(bound_names(ast.Module([statement], []))))}")
    head = _future_end(tree)
    before = code.split("\n")
    return "\n".join([*before[:head], *parts, *([""] if head == 0 else []), *before[head:]]), tuple(added)


def _used(node: ast.AST) -> set[str]:
    return {child.id for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)}


def _future_end(tree: ast.Module) -> int:
    """Lines up to the last `from __future__` import, before which nothing may stand; 0 where there is none."""
    ends = [node.end_lineno for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    return max((end for end in ends if end is not None), default=0)
