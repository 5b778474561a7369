"""The reference pages are what the code says: generated ones are fresh, the store's page knows every name."""

from __future__ import annotations

import re
import runpy
import sqlite3
from typing import Any

import pytest

from tests.docs.conftest import DOCS, ROOT, Studied

PAGES: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "generate.py"))["PAGES"]
STORE = (DOCS / "reference" / "store.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    stale = (DOCS / "reference" / name).read_text(encoding="utf-8") != PAGES[name]()
    assert not stale, "run: python docs/generate.py"


def part(title: str) -> set[str]:
    """The names in code marks of one part of the store's page."""
    text = STORE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert text, title
    return {name for mark in re.findall(r"`([^`]+)`", text) for name in re.findall(r"\w+", mark)}


def test_the_schema_is_the_stores() -> None:
    from agentloop.store import MIGRATIONS

    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", STORE.partition("\n## Packed")[0], re.MULTILINE))
    db = sqlite3.connect(":memory:")
    for script in MIGRATIONS:
        db.executescript(script)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    assert set(rows) == tables
    for table in tables:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        words = re.sub(r"\([^)]*\)", "", rows[table])
        assert re.findall(r"`(\w+)`", words) == columns, table
    assert f"(now {len(MIGRATIONS)})" in STORE
    db.close()


DYNAMIC = {
    "faults",
    "messages",
    "environment",
    "models",
    "initial",
    "final",
    "stop_reasons",
    "charged_by_role",
    "params",
    "bytes",
}
"""Keys of what holds names, outcomes or messages: its own keys are not told."""


def names(value: Any, key: str = "") -> set[str]:
    """Every key of nested data that has a fixed name."""
    if isinstance(value, list):
        return set().union(*(names(item, key) for item in value))
    if not isinstance(value, dict) or key in DYNAMIC:
        return set()
    return set(value).union(*(names(item, name) for name, item in value.items()))


def test_every_key_of_an_export_is_told(studied: Studied) -> None:
    from agentloop.export import export
    from agentloop.reader import open_run

    told = part("`export`")
    with open_run(studied.home / "runs" / "study") as run:
        rows = list(export(run))
    assert {row["kind"] for row in rows} == {"run", "transition", "grades"}
    for row in rows:
        assert {row["kind"], *row} <= told
        assert set().union(*row.get("hidden", [])) <= told


def test_every_key_of_the_data_is_told(studied: Studied) -> None:
    from agentloop.listing import Filter, find_attempt, listed
    from agentloop.reader import open_run
    from agentloop.report import report
    from agentloop.story import story

    with open_run(studied.home / "runs" / "study") as run:
        assert names(report(run)) <= part("`report --json`") | part("Manifest")
        entry = next(listed(run, Filter()))
        assert set(entry) <= part("`list --json`")
        told = part("`show --json`")
        data = story(run, find_attempt(run, "median:patient"))
        assert set(data) <= told
        records = part("Packed records")
        for event in data["events"]:
            assert event["kind"] in told
            assert set(event) <= told | records, event["kind"]
        assert set(run.manifest) <= part("Manifest")
        for entry in run.manifest["strategies"].values():
            assert set(entry) <= part("Manifest")
        for row in run.transitions(1):
            assert set(row["data"]) <= records
            for candidate in row["data"]["update"].get("candidates", []):
                assert set(candidate) <= records
            for kind, key, _ in row["data"]["used"]:
                assert names(run.record(key)) <= records, kind
