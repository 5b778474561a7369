"""A reader in an empty folder, who has the sandbox that the machine gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import Reader


@pytest.fixture
def follow(tmp_path: Path, need: Callable[[str], None]) -> Callable[[Path], None]:
    """`follow(page)` does what a page says and compares what it shows. Docker only where there are no namespaces."""
    from agentloop.sandbox.local import available

    engine = bool(available()["namespaces"])
    if engine:
        need("docker")

    def do(page: Path) -> None:
        for done in Reader(tmp_path, engine=engine).follow(page.read_text(encoding="utf-8")):
            where = f"{page.name}, line {done.line}: {done.command.typed}"
            assert done.as_shown, f"{where} ends with {done.status}\n{done.output}\n{done.errors}"

    return do
