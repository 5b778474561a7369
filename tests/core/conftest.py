"""A tiny study: two problems, a scripted model, the local sandbox. Doubles are public products; programs really run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloop
from agentloop.runner import Summary

ADD = {
    "id": "p/add",
    "statement": "Write add(a, b), the sum.",
    "entry_point": "add",
    "visible": [{"assert": "add(1, 2) == 3"}, {"assert": "add(0, 0) == 0"}],
    "hidden": [{"assert": "add(2, 2) == 4"}, {"assert": "add(-5, 2) == -3"}],
}
SQUARE = {
    "id": "p/square",
    "statement": "Write square(a).",
    "entry_point": "square",
    "visible": [{"assert": "square(2) == 4"}],
    "hidden": [{"assert": "square(3) == 9"}],
}


def fenced(body: str, head: str = "def add(a, b):") -> str:
    """A reply with one program."""
    return f"Here it is:\n\n```python\n{head}\n    {body}\n```\n"


Study = Callable[..., tuple[Summary, Path]]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """`study(rules, strategies, problems=..., out="run", **experiment)`: run it, return summary and run directory."""

    def run(
        rules: list[dict[str, Any]],
        strategies: list[Any],
        problems: list[dict[str, Any]] | None = None,
        out: str = "run",
        observer: Any = None,
        **experiment: Any,
    ) -> tuple[Summary, Path]:
        (tmp_path / "script.jsonl").write_text("".join(json.dumps(rule) + "\n" for rule in rules))
        (tmp_path / "problems.jsonl").write_text("".join(json.dumps(record) + "\n" for record in problems or [ADD]))
        tables = {
            "workload": {"name": "jsonl", "data": str(tmp_path / "problems.jsonl")},
            "models": [{"name": f"scripted:{tmp_path / 'script.jsonl'}", "label": "script"}],
            "strategies": [{"name": entry} if isinstance(entry, str) else entry for entry in strategies],
            "sandbox": "local",
            **experiment,
        }
        return agentloop.run(tables, tmp_path / out, observer=observer), tmp_path / out

    return run
