"""Blocks of code in a reply: what is marked as code by fences or tags, and what looks like code without a mark.

Pure text in linear time; which block is the program is `agentloop.extract`'s business. No model writes hundreds of
blocks in one reply, so only so many are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_THINKING = re.compile(r"\s*<(think|thinking|thought|reasoning)>")
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})(.*)$", re.MULTILINE)
_TAG = re.compile(r"\{?\.?([\w+#-]*)")
_ATTRIBUTES = re.compile(r"\{?\.?[\w+#-]+\}?(?:[ \t]*[,{:]?[ \t]*(?:[\w.-]+=\S.*|\{.*\}|[\w./-]+\.\w+))?\s*")
_PAIRS = (("[code]", "[/code]"), ("[python]", "[/python]"), ("[begin]", "[done]"),
          ("<code>", "</code>"), ("<solution>", "</solution>"))  # fmt: skip
PYTHON = ("python", "python3", "py")
"""Words for the language that stand as the tag of a block, or in its first line."""
_PAIR_START = re.compile("|".join(re.escape(start) for start, _ in _PAIRS), re.IGNORECASE)
_CODE_LINE = re.compile(
    r"(?:import|from|def|async|class|if|elif|for|while|with|except|assert|return|raise|global|del|pass)\b(?!.*[.?!]\s*$)"
    r"|(?:else|try|finally)\s*:|[@#)\]}\"']|print\(|[A-Za-z_][\w.\[\]\"', ]*[-+*/%|&^]?=[^=]|[A-Za-z_][\w.]*\(.*\)\s*$"
)
_STARTS = re.compile(r"^([ \t]*)(?:(?:import|from|def|async[ \t]+def|class)[ \t]+\w|@\w)", re.MULTILINE)
_MARKS, _LINES = 300, 5000
"""Fences or tags, and lines of unmarked text, that are looked at."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of the reply that may be the program. `tag` is the language that the reply gave, in lower case."""

    code: str
    rule: str
    tag: str = ""
    closed: bool = True


def clean(reply: str) -> str:
    """The reply without terminal escape codes, CR line ends, a byte order mark and leading reasoning.

    Reasoning goes only as a whole section at the start: a stray `</think>` after an answer removes nothing.
    """
    text = _ANSI.sub("", reply) if "\x1b" in reply else reply
    text = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    start = 0
    while opening := _THINKING.match(text, start):
        closing = f"</{opening[1]}>"
        at = text.find(closing, opening.end())
        if at < 0:
            break
        start = at + len(closing)
    return text[start:]


def fenced(text: str) -> list[Block]:
    """Blocks between fences as in CommonMark: backticks or tildes, closed by as many or more of the same, any indent.

    The last block comes first. Beyond CommonMark: a last block that nothing closes (`fence_unclosed`), an opening fence
    inside a block that nothing closed (`fence_restarted`), a fence at the end of a line of code (`fence_end_of_line`),
    code on the line of the opening fence (`fence_glued`), text before a closing fence that nothing opened
    (`before_fence`).
    """
    marks = _marks(text)
    found: list[list[Block]] = []
    if marks and not marks[0][3].strip():
        found.append([Block(text[: marks[0].start()], "before_fence")])
    at = 0
    while at < len(marks):
        opening = marks[at]
        end = next((i for i in range(at + 1, len(marks)) if _closes(marks[i], opening)), len(marks))
        closing = marks[end] if end < len(marks) else None
        variants = list(_variants(text, opening, closing))
        if end > at + 1 and marks[end - 1][3].strip():  # a fence with a language inside: nothing closed the one before
            variants += [replace(block, rule="fence_restarted") for block in _variants(text, marks[end - 1], closing)]
        found.append(variants)
        at = end + 1
    blocks = [block for variants in reversed(found) for block in variants if block.code.strip()]
    return blocks or list(_inline(text))


def extended(text: str) -> Iterator[Block]:
    """From each opening fence past the next closing ones: CommonMark cuts a program short whose strings hold fences."""
    marks = _marks(text)[:20]
    for index, mark in enumerate(marks[:4]):
        for end in [other for other in marks[index + 1 :] if _closes(other, mark)][1:4]:
            yield Block(_content(text, mark, end), "fence_extended", _language(mark[3].strip()))


def tagged(text: str) -> list[Block]:
    """Blocks between `[code]` and `[/code]`, `[PYTHON]`, `[BEGIN]` and `[DONE]`, `<solution>`; the last may be open.

    The last block comes first; what fences mark inside a tag comes instead of it.
    """
    found: list[list[Block]] = []
    lower = text.lower()
    at = 0
    while len(found) < _MARKS and (opening := _PAIR_START.search(text, at)):
        closing = dict(_PAIRS)[opening[0].lower()]
        end = lower.find(closing, opening.end())
        code = text[opening.end() : end if end >= 0 else len(text)].strip("\n") + "\n"
        if code.strip():
            inner = fenced(code) if "```" in code or "~~~" in code else []
            found.append(inner or [Block(code, "tag" if end >= 0 else "tag_unclosed", closed=end >= 0)])
        at = end + len(closing) if end >= 0 else len(text)
    return [block for blocks in reversed(found) for block in blocks]


def regions(text: str) -> list[Block]:
    """Runs of lines that look like Python, each from a line that starts a definition or import; the longest first."""
    starts = [match[1] for match in islice(_STARTS.finditer(text), _LINES)]
    if not starts:
        return []
    lines = text.split("\n", _LINES)[:_LINES]
    indent = min(map(len, starts))
    lines = [line[indent:] if line[:indent].isspace() else line for line in lines] if indent else lines
    found: list[list[str]] = []
    run: list[str] = []
    for line in [*lines, "."]:  # a line that is no code ends the last run
        if run and (not line.strip() or line[0] in " \t" or is_code_line(line)):
            run.append(line)
            continue
        if run:
            found.append(run)
        run = [line] if _STARTS.match(line) else []
    found.sort(key=len, reverse=True)
    return [Block("\n".join(lines).rstrip() + "\n", "region") for lines in found[:8]]


def is_code_line(line: str) -> bool:
    """Whether a line without its indentation looks like Python rather than prose."""
    return _CODE_LINE.match(line) is not None


def _marks(text: str) -> list[re.Match[str]]:
    """The lines that are fences; backticks after the fence make it code within a sentence."""
    marks = (mark for mark in _FENCE.finditer(text) if mark[2][0] == "~" or "`" not in mark[3])
    return list(islice(marks, _MARKS))


def _closes(mark: re.Match[str], opening: re.Match[str]) -> bool:
    return mark[2].startswith(opening[2]) and not mark[3].strip()


def _content(text: str, opening: re.Match[str], closing: re.Match[str] | None) -> str:
    """The lines between two fences, without the indentation that the opening fence has."""
    content = text[opening.end() + 1 : closing.start() if closing else len(text)]
    if opening[1]:
        content = re.sub(rf"^[ \t]{{1,{len(opening[1])}}}", "", content, flags=re.MULTILINE)
    return content if content.endswith("\n") else content + "\n"


def _variants(text: str, opening: re.Match[str], closing: re.Match[str] | None) -> Iterator[Block]:
    info = opening[3].strip()
    tag = _language(info)
    content = _content(text, opening, closing)
    ended = re.search(r"^(.*[^`\s][ \t]*)```[ \t]*$", content, re.MULTILINE) if closing is None else None
    if ended:  # the fence stands at the end of a line of code
        yield Block(content[: ended.end(1)] + "\n", "fence_end_of_line", tag)
    first, _, rest = content.partition("\n")
    if first.strip().lower() in PYTHON:  # the language stands inside the block
        content = rest
    yield Block(content, "fence_unclosed" if closing is None else "fence", tag, closing is not None)
    if info and not _ATTRIBUTES.fullmatch(info):
        word, _, rest = info.partition(" ")
        head = rest if word.lower() in PYTHON else info
        yield Block(f"{head}\n{content}", "fence_glued", "", closing is not None)


def _language(info: str) -> str:
    match = _TAG.match(info)
    return match[1].lower() if match else ""


def _inline(text: str) -> Iterator[Block]:
    """Code between fences on one line."""
    for match in islice(re.finditer(r"(?<!`)```(?!`)([^`\n]+)```(?!`)", text), 20):
        code = match[1].strip()
        word, _, rest = code.partition(" ")
        yield Block((rest if word.lower() in PYTHON else code) + "\n", "fence_inline")
