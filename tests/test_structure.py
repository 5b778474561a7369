"""Conventions that are tests: one direction of imports, small files, nothing heavy at import, no words of a machine."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "agentloop"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "_catalog" not in path.parts)

# One stdlib-only file by design: it is sent whole into every backend, and must be read as one to be trusted.
LONGER = {"judge.py": 1000}

# Who may not import whom, by prefix of the module's path below agentloop/: data flows one way.
FORBIDDEN = {
    "models/": ("store", "journal", "context", "nodes", "runner", "replay", "sandbox", "workloads", "report", "cli"),
    "sandbox/": ("store", "journal", "context", "nodes", "runner", "replay", "models", "workloads", "report", "cli"),
    "workloads/": ("store", "journal", "context", "nodes", "runner", "replay", "models", "sandbox", "report", "cli"),
    "feedback": ("store", "journal", "context", "nodes", "runner", "models", "sandbox"),
    "store": ("journal", "context", "nodes", "runner", "replay", "models", "sandbox", "report", "cli"),
    "reader": ("journal", "context", "nodes", "runner", "replay", "models", "sandbox", "cli"),
    "report": ("journal", "context", "nodes", "runner", "replay", "models", "sandbox", "cli"),
    "nodes": ("store", "runner", "replay", "models", "sandbox", "workloads", "report", "cli"),
    "context": ("store", "runner", "replay", "workloads", "report", "cli"),
    "runner": ("cli", "commands", "report", "reader"),
}


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body.clear()
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("agentloop."):
            found.add(node.module.removeprefix("agentloop."))
        if isinstance(node, ast.ImportFrom) and node.module == "agentloop":
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    name = str(path.relative_to(PACKAGE))
    for prefix, others in FORBIDDEN.items():
        if name == f"{prefix}.py" or (prefix.endswith("/") and name.startswith(prefix)):
            own = prefix.rstrip("/")
            bad = {module for module in _imports(path) for other in others if module.split(".")[0] == other != own}
            assert not bad


OTHERS = [path for folder in ("graphs", "tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", [*FILES, *OTHERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_small(path: Path) -> None:
    limit = LONGER.get(path.name, 90 if path.parent.name == "graphs" else 400)
    assert len(path.read_text().splitlines()) <= limit


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, agentloop, agentloop.cli; print([m for m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("litellm", "langgraph", "docker", "e2b", "pydantic", "xllamacpp", "jinja2", "rich.console"):
        assert f"'{heavy}'" not in loaded
