"""The tutorial, done as it is written: every file written, every command typed, every output compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tutorial_shows_what_happens(follow: Callable[[Path], None]) -> None:
    follow(ROOT / "docs" / "tutorial" / "first-strategy.md")
