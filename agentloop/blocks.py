"""Blocks of code in a reply: what is marked as code by fences or tags, and what looks like code without a mark.

Pure text in linear time; which block is the program is `agentloop.extract`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_THINKING = re.compile(r"\s*<(think|thinking|thought|reasoning)>")
_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)")
_TAG = re.compile(r"\{?\.?([\w+#-]*)")
_ATTRIBUTES = re.compile(r"\{?\.?[\w+#-]+\}?(?:[ \t]*[,{:]?[ \t]*(?:[\w.-]+=\S.*|\{.*\}|[\w./-]+\.\w+))?\s*")
_PAIRS = (("[code]", "[/code]"), ("[python]", "[/python]"), ("[begin]", "[done]"),
          ("<code>", "</code>"), ("<solution>", "</solution>"))  # fmt: skip
_PAIR_START = re.compile("|".join(re.escape(start) for start, _ in _PAIRS), re.IGNORECASE)
_CODE_LINE = re.compile(
    r"(?:import|from|def|async|class|if|elif|for|while|with|except|assert|return|raise|global|del|pass)\b(?!.*[.?!]\s*$)"
    r"|(?:else|try|finally)\s*:|[@#)\]}\"']|print\(|[A-Za-z_][\w.\[\]\"', ]*[-+*/%|&^]?=[^=]|[A-Za-z_][\w.]*\(.*\)\s*$"
)
_STARTS = re.compile(r"(?:import|from|def|async[ \t]+def|class)[ \t]+\w|@\w")


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
    while opening := _THINKING.match(text):
        closing = f"</{opening[1]}>"
        at = text.find(closing, opening.end())
        if at < 0:
            break
        text = text[at + len(closing) :]
    return text


def fenced(text: str) -> list[Block]:
    """Blocks between fences as in CommonMark: backticks or tildes, closed by as many or more of the same, any indent.

    Beyond CommonMark: a last block that nothing closes (`fence_unclosed`), a fence at the end of a line of code, code
    on the line of the opening fence (`fence_glued`), and text before a closing fence that nothing opened
    (`before_fence`).
    """
    lines = text.split("\n")
    blocks: list[Block] = []
    index = first = 0
    while index < len(lines):
        opening = _FENCE.fullmatch(lines[index])
        if not opening or (opening[2][0] == "`" and "`" in opening[3]):
            index += 1
            continue
        end = _close(lines, index + 1, opening[2])
        content = _dedent(lines[index + 1 : end], len(opening[1]))
        closed = end < len(lines)
        if closed or any(line.strip() for line in content):
            blocks += _variants(content, opening[3].strip(), closed)
        if first == 0:
            first = index + 1
            if index and not opening[3].strip():
                blocks.append(Block(_text(lines[:index]), "before_fence"))
        index = end + 1
    return [block for block in blocks if block.code.strip()] or list(_inline(text))


def extended(text: str) -> Iterator[Block]:
    """From each opening fence past the next closing ones: CommonMark cuts a program short whose strings hold fences."""
    lines = text.split("\n")
    marks = [(index, mark) for index, line in enumerate(lines) if (mark := _FENCE.fullmatch(line))]
    for index, mark in marks[:4]:
        ends = [at for at, other in marks if at > index and not other[3].strip() and other[2][0] == mark[2][0]]
        for end in ends[1:4]:
            yield Block(
                _text(_dedent(lines[index + 1 : end], len(mark[1]))), "fence_extended", _language(mark[3].strip())
            )


def tagged(text: str) -> list[Block]:
    """Blocks between `[code]` and `[/code]`, `[PYTHON]`, `[BEGIN]` and `[DONE]`, `<solution>`; the last may be open."""
    blocks = []
    lower = text.lower()
    at = 0
    while opening := _PAIR_START.search(text, at):
        closing = dict(_PAIRS)[opening[0].lower()]
        end = lower.find(closing, opening.end())
        code = text[opening.end() : end if end >= 0 else len(text)].strip("\n") + "\n"
        if code.strip():
            inner = fenced(code) if "```" in code or "~~~" in code else []
            blocks += inner or [Block(code, "tag" if end >= 0 else "tag_unclosed", closed=end >= 0)]
        at = end + len(closing) if end >= 0 else len(text)
    return blocks


def regions(text: str) -> list[Block]:
    """Runs of lines that look like Python, each from a line that starts a definition or import; the longest first."""
    lines = text.split("\n")
    starts = [line for line in lines if _STARTS.match(line.lstrip())]
    indent = min((len(line) - len(line.lstrip()) for line in starts), default=0)
    lines = [line[indent:] if line[:indent].isspace() else line for line in lines] if indent else lines
    found: list[list[str]] = []
    run: list[str] = []
    for line in [*lines, "."]:
        if run and (not line.strip() or line[0] in " \t" or is_code_line(line)):
            run.append(line)
            continue
        if run:
            found.append(run)
        run = [line] if _STARTS.match(line) else []
    found.sort(key=len, reverse=True)
    return [Block(_text(lines), "region") for lines in found[:8]]


def is_code_line(line: str) -> bool:
    """Whether a line without its indentation looks like Python rather than prose."""
    return _CODE_LINE.match(line) is not None


def _close(lines: list[str], start: int, fence: str) -> int:
    for index in range(start, len(lines)):
        mark = lines[index].strip()
        if len(mark) >= len(fence) and mark == fence[0] * len(mark):
            return index
    return len(lines)


def _variants(content: list[str], info: str, closed: bool) -> Iterator[Block]:
    tag = _language(info)
    rule = "fence" if closed else "fence_unclosed"
    if not closed:
        inner = next((i for i, line in enumerate(content) if line.rstrip().endswith("```")), None)
        if inner is not None:  # the fence stands at the end of a line of code
            line = content[inner].rstrip().rstrip("`")
            yield Block(_text([*content[:inner], line]), "fence_end_of_line", tag)
    if content and content[0].strip().lower() in ("python", "python3", "py"):
        content = content[1:]  # the language stands inside the block
    yield Block(_text(content), rule, tag, closed)
    if info and not _ATTRIBUTES.fullmatch(info):
        word, _, rest = info.partition(" ")
        head = rest if word.lower() in ("python", "python3", "py") else info
        yield Block(_text([head, *content]), "fence_glued", "", closed)


def _language(info: str) -> str:
    match = _TAG.match(info)
    return match[1].lower() if match else ""


def _inline(text: str) -> Iterator[Block]:
    """Code between fences on one line."""
    for match in re.finditer(r"(?<!`)```(?!`)([^`\n]+)```(?!`)", text):
        code = match[1].strip()
        word, _, rest = code.partition(" ")
        yield Block((rest if word.lower() in ("python", "python3", "py") else code) + "\n", "fence_inline")


def _dedent(lines: list[str], indent: int) -> list[str]:
    """Lines without up to `indent` leading blanks: those of the opening fence."""
    return [line[min(indent, len(line) - len(line.lstrip(" \t"))) :] for line in lines] if indent else lines


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
