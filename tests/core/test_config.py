"""Experiments: unknown keys refused with the nearest, overrides, labels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentloop.config import load, override, parse
from agentloop.errors import UserError

ROOT = Path(__file__).parents[2]
TABLES: dict[str, Any] = {"models": [{"name": "scripted:x.jsonl"}], "strategies": [{"name": "direct"}]}


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ({**TABLES, "sampels": 2}, "unknown key 'sampels': did you mean 'samples'?"),
        ({**TABLES, "workload": {"limits": 2}}, "did you mean 'limit'?"),
        ({**TABLES, "models": [{"name": "m", "temprature": 1}]}, "did you mean 'temperature'?"),
        ({**TABLES, "samples": 0}, "samples = 0"),
        ({"strategies": [{"name": "direct"}]}, "key models is needed"),
        ({**TABLES, "strategies": []}, "key strategies is needed"),
        ({**TABLES, "strategies": [{"name": "direct"}, {"name": "direct"}]}, "two strategies are called 'direct'"),
    ],
)
def test_bad_tables_are_one_clear_error(tables: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        parse(tables)


def test_overrides_reach_every_key() -> None:
    tables: dict[str, Any] = {**TABLES, "strategies": [{"name": "feedback_loop", "label": "naive"}]}
    for assignment in (
        "workload.limit=10",
        "strategies.naive.settings.history=full",
        "models.0.temperature=0.5",
        "name=a b",
    ):
        override(tables, assignment)
    experiment = parse(tables)
    assert experiment.workload.limit == 10
    assert experiment.strategies[0].settings == {"history": "full"}
    assert experiment.models[0].temperature == 0.5
    assert experiment.name == "a b"


@pytest.mark.parametrize(
    ("assignment", "says"),
    [("limit", "write key=value"), ("models.7.name=x", "no item '7'"), ("seed.x=1", "is a value, not a table")],
)
def test_a_bad_override_is_one_clear_error(assignment: str, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        override({**TABLES, "seed": 0}, assignment)


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_experiment_parses(path: Path) -> None:
    assert parse(load(path)).name == path.stem


def test_a_file_that_is_no_toml_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text("name = 'x'\nseed = = 1\n")
    with pytest.raises(UserError, match="line 2"):
        load(tmp_path / "e.toml")
