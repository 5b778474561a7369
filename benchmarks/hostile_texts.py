"""Is reading a model's text linear in its length, whatever the text? Hostile texts, and the same at twice the length.

    python benchmarks/hostile_texts.py [--length N]

For each reader (extraction of a reply, digest of a Python program, tokens of a program in another language) prints the
slowest texts: milliseconds of CPU for N characters, and the ratio of twice as many to that. A ratio near 2 is linear,
near 4 quadratic; times under 5 ms are too short for a ratio. The least of five rounds counts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agentloop.extract import extract
from agentloop.lexer import tokens
from agentloop.program import ast_digest
from agentloop.types import Problem, Suite

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.hostile_texts import LEXEMES, REPLIES, SOURCES, STARTS, repeated

PRELUDE = "from typing import List\n\n\n"
NOTHING = Suite("visible", ())
PROBLEM = Problem(
    "p", "w", "s", "function", NOTHING, NOTHING, entry_point="solve", prelude=PRELUDE, stub="def solve(xs):\n"
)
TOO_SHORT = 0.005
"""Seconds below which a ratio says nothing."""


def seconds(read: Callable[[str], object], text: str) -> float:
    """CPU seconds of reading the text, the least of five."""
    times = []
    for _ in range(5):
        began = time.process_time()
        read(text)
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=100_000)
    length = parser.parse_args().length
    readers: dict[str, tuple[Callable[[str], object], dict[str, tuple[str, str, str]]]] = {
        "extract": (
            lambda text: extract(text, PROBLEM),
            {
                f"{name}, fenced" if start else name: (start, unit, "")
                for name, unit in REPLIES.items()
                for start in STARTS
            },
        ),
        "digest": (lambda text: ast_digest.__wrapped__(text, "python"), SOURCES),
        "tokens": (lambda text: list(tokens(text)), {repr(unit): ("", unit, "") for unit in LEXEMES}),
    }
    for reader, (read, texts) in readers.items():
        read("x")
        found = []
        for name, (start, unit, end) in texts.items():
            once, twice = (seconds(read, repeated(unit, size, start, end)) for size in (length, 2 * length))
            found.append((once, f"{twice / once:.1f}" if once > TOO_SHORT else "-", name))
        print(f"{reader}: {len(found)} texts; the five slowest, and the steepest:")
        steepest = max((row for row in found if row[1] != "-"), key=lambda row: float(row[1]), default=None)
        for once, ratio, name in [*sorted(found, reverse=True)[:5], *([steepest] if steepest else [])]:
            print(f"  {once * 1000:7.1f} ms, twice as long {ratio:>4} times  {name}")


if __name__ == "__main__":
    main()
