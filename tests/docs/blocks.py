"""Markdown as a program: the fenced blocks of a page, and a reader who does what they say.

A block whose paragraph before it ends in "`PATH`:" is a file: written as it stands, or, in a `diff` block, changed.
A `console` block is a dialogue with a shell: lines after "$ " are typed, what follows each is what standard output must
be. "..." stands for anything, alone on a line for any lines. A `python` block that is no file is run. A `sh` block is
for a person's own machine and is not.

`python -m tests.docs.blocks PAGE` runs a page and writes the outputs that differ into it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+)`:\s*\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block. `path`: the file that it is about, '' for none."""

    language: str
    text: str
    path: str
    line: int


@dataclass(frozen=True)
class Command:
    """One command of a `console` block and its shown output."""

    typed: str
    shown: str


@dataclass(frozen=True)
class Done:
    """A command that was typed, what the page shows, and how it really ended."""

    command: Command
    line: int
    status: int
    output: str
    errors: str

    @property
    def as_shown(self) -> bool:
        return self.status == 0 and agrees(self.output, self.command.shown)


def blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a page. A `diff` block right after another one is about the same file."""
    before, path = 0, ""
    for match in _FENCE.finditer(markdown):
        words = markdown[before : match.start()]
        named = _FILE.search(words) if match[2] != "console" else None
        again = match[2] == "diff" and not words.strip()
        path = named[1] if named else path if again else ""
        yield Block(match[2], match[3], path, markdown.count("\n", 0, match.start()) + 1)
        before = match.end()


def commands(console: str) -> Iterator[Command]:
    """The commands of a `console` block; a line that ends in a backslash goes on."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        match = re.match(r"(?:.*\\\n)*.*\n?", part)
        typed = match[0] if match else ""
        yield Command(typed.rstrip("\n"), part[len(typed) :])


def changed(text: str, diff: str) -> str:
    """A file's text after a `diff` block. Raises `ValueError` where what it changes does not stand there once."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[:1] in " -")
    new = "".join(line[1:] for line in lines if line[:1] in " +")
    if text.count(old) != 1:
        raise ValueError(f"stands {text.count(old)} times in the file:\n{old}")
    return text.replace(old, new)


def agrees(output: str, shown: str) -> bool:
    """Whether an output is what a page shows; white space at the ends of lines does not count."""
    pattern = ""
    for line in _lines(shown):
        part = ".*".join(map(re.escape, line.split("...")))
        pattern += r"(?:.*\n)*?" if line == "..." else part + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(output))) is not None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip("\n").split("\n")] if text.strip() else []


class Reader:
    """Follows pages in a folder of its own, with `agentloop` on the PATH; `engine` False: without Docker."""

    def __init__(self, folder: Path, *, engine: bool) -> None:
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        command = folder / "bin" / "agentloop"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentloop.cli "$@"\n')
        command.chmod(0o755)
        paths = {"PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(folder)}
        self._environment = {**os.environ, **paths, "AGENTLOOP_NO_OUTSIDE": "1"}
        if not engine:
            self._environment["DOCKER_HOST"] = f"unix://{folder}/none.sock"

    def follow(self, page: str) -> Iterator[Done]:
        """Do what a page says, from its first block to its last; what came of each command."""
        for block in blocks(page):
            path = self.home / block.path
            if block.path and block.language == "diff":
                path.write_text(changed(path.read_text(), block.text))
            elif block.path:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            elif block.language == "python":
                yield self._run([sys.executable, "-c", block.text], Command("(python)", "..."), block.line)
            elif block.language == "console":
                for command in commands(block.text):
                    yield self._run(["bash", "-euc", command.typed], command, block.line)

    def _run(self, argv: list[str], command: Command, line: int) -> Done:
        done = subprocess.run(
            argv, cwd=self.home, env=self._environment, capture_output=True, text=True, timeout=300, check=False
        )
        return Done(command, line, done.returncode, done.stdout, done.stderr)


def record(page: Path) -> None:
    """Run a page and write the outputs that differ into it; elisions in these are lost."""
    text, at = page.read_text(encoding="utf-8"), 0
    with tempfile.TemporaryDirectory() as folder:
        for done in Reader(Path(folder), engine=False).follow(text):
            print(f"$ {done.command.typed}\n{done.output}{done.errors if done.status else ''}")
            if done.command.typed == "(python)":
                continue
            head, shown = f"$ {done.command.typed}\n", done.command.shown
            at = text.index(head + shown, at) + len(head)
            real = shown if done.as_shown else "".join(f"{line}\n" for line in _lines(done.output))
            text = text[:at] + real + text[at + len(shown) :]
            at += len(real)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
