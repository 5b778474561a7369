"""The compiled languages: one entry each, with its source file, its compiler, and how the result is run.

All that a compiler or a virtual machine needs beyond the program itself is here, so that a limit never turns a right
program into a compile error. Why each flag is there: `docs/reference/languages.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile

from agentloop.lexer import tokens
from agentloop.types import Limits

MIB = 2**20
BUILD = Limits(cpu=60.0, wall=180.0, memory=1536 * MIB, output=MIB, processes=128, file_size=48 * MIB, open_files=1024)
"""What one compilation may use. It also stops a program that only wants to keep the compiler busy."""
JVM_ROOM, JVM_THREADS = 512 * MIB, 32
"""What the virtual machine has beside the program's own limits: memory for itself and for stacks, threads.

Most it needs to unwind a stack that overflows: 480 MiB in all for one of 64 MiB and small frames.
"""
_SMALL_JVM = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:-UseContainerSupport", "-XX:ActiveProcessorCount=2")
# Temporary files go where the result goes: the only place that may be written on every level.
_GNU = ("/usr/bin/env", "TMPDIR={src}")


def _same(limits: Limits) -> Limits:
    return limits


@dataclass(frozen=True, slots=True)
class Compiled:
    """A language. `source`: the file name of a program's text; `run`: the argv of a program under these limits."""

    source: Callable[[str], str]
    build: tuple[str, ...]
    """argv, with `{source}` for the file's name; it runs in the directory that holds the file."""
    run: Callable[[str, Limits], tuple[str, ...]]
    version: tuple[str, ...]
    """argv that prints the compiler's version in its first line."""
    package: str
    """What Debian calls the compiler."""
    limits: Callable[[Limits], Limits] = _same
    """The limits of a test's process, from those of the problem."""


def _binary(program: str, limits: Limits) -> tuple[str, ...]:
    return ("{src}/main",)


def _beside(limits: Limits) -> Limits:
    return replace(limits, memory=limits.memory + JVM_ROOM, processes=limits.processes + JVM_THREADS)


def _java(program: str, limits: Limits) -> tuple[str, ...]:
    heap = f"-Xmx{max(limits.memory // MIB, 2)}m"
    # Temporary files go where the program may write on every level.
    return ("java", *_SMALL_JVM, heap, "-Xss64m", "-Djava.io.tmpdir=.", "-cp", "{src}", java_classes(program)[1])


_RUST = ("rustc", "--edition", "2021", "-O", "-C", "overflow-checks=on", "--cap-lints", "allow", "--color", "never")
COMPILED = {
    "c": Compiled(
        source=lambda program: "main.c",
        build=(*_GNU, "gcc", "-std=gnu17", "-O2", "-w", "-pipe", "-fmax-errors=20", "-o", "main", "{source}", "-lm"),
        run=_binary,
        version=("gcc", "--version"),
        package="gcc libc6-dev",
    ),
    "cpp": Compiled(
        source=lambda program: "main.cpp",
        build=(*_GNU, "g++", "-std=gnu++17", "-O2", "-w", "-pipe", "-fmax-errors=20", "-o", "main", "{source}", "-lm"),
        run=_binary,
        version=("g++", "--version"),
        package="g++",
    ),
    "java": Compiled(
        source=lambda program: java_classes(program)[0] + ".java",
        build=(
            "javac", *(f"-J{flag}" for flag in (*_SMALL_JVM, "-XX:TieredStopAtLevel=1", "-Xmx1g", "-Xss64m")),
            "-encoding", "UTF-8", "-proc:none", "-nowarn", "-Xlint:none", "-d", ".", "{source}",
        ),
        run=_java,
        version=("javac", *(f"-J{flag}" for flag in _SMALL_JVM), "-version"),
        package="default-jdk-headless",
        limits=_beside,
    ),
    "rust": Compiled(
        source=lambda program: "main.rs",
        build=(*_GNU, *_RUST, "-o", "main", "{source}"),
        run=_binary,
        version=("rustc", "--version"),
        package="rustc (rustc-web on Debian 12, whose own is too old)",
    ),
}  # fmt: skip


def java_classes(program: str) -> tuple[str, str]:
    """The name of a Java source's file, and of the class to start (with its package), from a scan of its tokens.

    The file is named by the public top-level type, as javac demands. Started is the first top-level type that has a
    `main`, the public one first. `Main` where there is none of these.
    """
    package, public, depth = "", "", 0
    types: list[str] = []
    starting: list[str] = []
    before: list[str] = []
    words = iter(tokens(program))
    for word in words:
        if word == "package" and not types and depth == 0 and not package:
            package = "".join(takewhile(lambda part: part == "." or _is_name(part), words))
        elif depth == 0 and word in ("class", "interface", "enum", "record") and before[-1:] != ["."]:  # not A.class
            name = next(words, "")
            if _is_name(name):
                types.append(name)
                public = public or (name if "public" in before else "")
        elif depth == 1 and types and word == "main" and before[-1:] == ["void"] and types[-1] not in starting:
            starting.append(types[-1])
        depth = max(0, depth + {"{": 1, "}": -1}.get(word, 0))
        before = [] if word in "{};" else [*before[-7:], word]
    name = public or (types[0] if types else "Main")
    start = public if public in starting else next(iter(starting), name)
    return name, f"{package}.{start}" if package else start


def _is_name(word: str) -> bool:
    """Whether a word can be the name of a type, and of a file: it comes from a program, whatever that is."""
    return word.isidentifier() and len(word.encode()) <= 200
