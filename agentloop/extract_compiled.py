"""The program in a reply, in a compiled language: by the language's tag, by its `main`, by what code looks like."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agentloop.blocks import Block

TAGS = {
    "c": frozenset({"c", "h"}),
    "cpp": frozenset({"cpp", "c++", "cc", "cxx", "cplusplus"}),
    "java": frozenset({"java"}),
    "rust": frozenset({"rust", "rs"}),
}
_MAIN = {
    "c": r"\bmain\s{0,9}\(",
    "cpp": r"\bmain\s{0,9}\(",
    "java": r"\bvoid\s{1,9}main\s{0,9}\(",
    "rust": r"\bfn\s{1,9}main\s{0,9}\(",
}
_BEGINS = {
    "c": r"^(?:#[ \t]*(?:include|define)\b|(?:int|void)[ \t]+main\b)",
    "cpp": r"^(?:#[ \t]*(?:include|define)\b|using[ \t]+namespace\b|(?:int|auto)[ \t]+main\b)",
    "java": r"^(?:(?:import|package)[ \t]+[\w.* \t]+;|(?:(?:public|final)[ \t]+)?(?:class|interface|enum|record)[ \t])",
    "rust": r"^(?:use[ \t]+[\w:{]|#!?\[|(?:pub[ \t]+)?(?:fn|struct|enum|impl|mod|const|static)\b)",
}


def choose(blocks: Sequence[Block], text: str, language: str) -> Block | None:
    """The program in a reply, of its marked blocks (the last one first); None if nothing looks like one.

    A block with the language's tag goes before one without, a whole program (it has a `main`) before a part, the last
    before the others; of parts the longest. Without any mark it is the text from the first line that begins code to the
    last closing brace.
    """
    blocks, main = [_without_word(block, language) for block in blocks], re.compile(_MAIN[language])
    tagged = [block for block in blocks if block.tag in TAGS[language]]
    plain = [block for block in blocks if not block.tag]
    for group in (tagged, plain):
        if whole := next((block for block in group if main.search(block.code)), None):
            return whole
    if tagged:
        return max(tagged, key=lambda block: len(block.code))
    if whole := next((block for block in blocks if main.search(block.code)), None):
        return whole
    return _unmarked(text, language) or max(plain, key=lambda block: len(block.code), default=None)


def _without_word(block: Block, language: str) -> Block:
    """The language may stand in the block's first line, beneath the fence or after the tag."""
    first, _, rest = block.code.lstrip("\n").partition("\n")
    word = first.strip().lower()
    return replace(block, code=rest, tag=block.tag or word) if word in TAGS[language] else block


def _unmarked(text: str, language: str) -> Block | None:
    begin = re.compile(_BEGINS[language], re.MULTILINE).search(text)
    if begin is None or not re.compile(_MAIN[language]).search(text, begin.start()):
        return None
    end = text.rfind("}")
    if end < begin.start():
        return Block(text[begin.start() :], "region", closed=False)
    return Block(text[begin.start() : end + 1] + "\n", "region")
