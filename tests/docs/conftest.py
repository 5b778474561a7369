"""Readers who follow pages with the sandbox that the machine gives: the tutorial once, the other pages after it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.blocks import Reader

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


@dataclass(frozen=True)
class Studied:
    """The tutorial after its last line, or after what went wrong: why ('' for all well), and the reader's folder."""

    wrong: str
    home: Path


@pytest.fixture(scope="session")
def engine(need: Callable[[str], None]) -> bool:
    """Whether readers need Docker: only where there are no namespaces."""
    from agentloop.sandbox.local import available

    if missing := bool(available()["namespaces"]):
        need("docker")
    return missing


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory, engine: bool) -> Studied:
    """The tutorial, done once."""
    reader = Reader(tmp_path_factory.mktemp("tutorial"), engine=engine)
    return Studied(wrong(reader, "tutorial/first-strategy.md"), reader.home)


@pytest.fixture
def follow(tmp_path: Path, engine: bool) -> Callable[..., None]:
    """`follow(page, after=studied)`: a reader of that page, in an empty folder or a copy of another reader's."""

    def do(page: str, after: Studied | None = None) -> None:
        if after is not None:
            if after.wrong:
                pytest.fail(f"the tutorial that this page goes on from went wrong: {after.wrong}", pytrace=False)
            shutil.copytree(after.home, tmp_path / "home")
        if told := wrong(Reader(tmp_path, engine=engine), page):
            pytest.fail(told, pytrace=False)

    return do


def wrong(reader: Reader, page: str) -> str:
    """Follow a page to its end, or to the first command that does not go as shown; then what came of that."""
    count = 0
    for count, one in enumerate(reader.follow((DOCS / page).read_text(encoding="utf-8")), 1):  # noqa: B007
        if not one.as_shown:
            told = f"{one.command.typed} ends with {one.status}\n{one.output}\n{one.errors}"
            return (
                f"docs/{page}, block at line {one.line}: {told}\nnew outputs: python -m tests.docs.blocks docs/{page}"
            )
    return "" if count else f"docs/{page}: no command"
