"""The command works from this environment, and from a wheel installed in an empty one outside the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBLEM = {
    "id": "double",
    "statement": "Write a function double(x) that returns x twice.",
    "entry_point": "double",
    "visible": [{"assert": "double(2) == 4"}],
    "hidden": [{"assert": "double(21) == 42"}, {"assert": "double('ab') == 'abab'"}],
}
ANSWERS = """
[[rule]]
last = 'repair|wrong|fail|expected'
reply = '''
```python
def double(x):
    return x + x
```
'''

[[rule]]
reply = '''
```python
def double(x):
    return x + 1
```
'''
"""


def run(command: Sequence[str | Path], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def here() -> list[str]:
    """The command of this environment."""
    return [str(Path(sys.executable).parent / "agentloop")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a wheel in an environment of its own: the locked versions, nothing of the checkout."""
    uv = shutil.which(ROOT / ".uv" / "bin" / "uv") or shutil.which("uv")
    if uv is None:
        pytest.skip("no uv to build a wheel with (make setup installs one)")
    folder = tmp_path_factory.mktemp("wheel")
    run([uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], folder)
    (built,) = folder.glob("*.whl")
    locked = ["export", "--quiet", "--locked", "--no-dev", "--no-emit-project", "--no-hashes"]
    run([uv, *locked, "--project", ROOT, "--output-file", folder / "locked.txt"], folder)
    run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    run([uv, "pip", "install", "--quiet", "--python", python, "-r", folder / "locked.txt", built], folder)
    return [str(python.with_name("agentloop"))]


def scripted_run(command: list[str], folder: Path) -> None:
    (folder / "problems.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (folder / "answers.toml").write_text(ANSWERS)
    experiment = ["--workload", "jsonl", "--data", "problems.jsonl", "--model", "scripted:answers.toml"]
    run([*command, "run", *experiment, "--strategy", "feedback_loop", "--sandbox", "any", "--out", "out"], folder)
    listed = [json.loads(line) for line in run([*command, "list", "out", "--json"], folder).splitlines()]
    assert [(row["problem"], row["hidden"]) for row in listed] == [("double", ["failed", "passed"])]
    assert "equal" in run([*command, "replay", "out"], folder)


def test_a_scripted_run_here(here: list[str], tmp_path: Path) -> None:
    run([*here, "--help"], tmp_path)
    scripted_run(here, tmp_path)


def test_a_scripted_run_from_the_wheel(wheel: list[str], tmp_path: Path) -> None:
    scripted_run(wheel, tmp_path)


def test_the_wheel_lists_the_same_catalog(here: list[str], wheel: list[str], tmp_path: Path) -> None:
    catalog = run([*here, "list", "catalog"], tmp_path)
    assert "feedback_loop" in catalog
    assert run([*wheel, "list", "catalog"], tmp_path) == catalog
    run([*wheel, "show", "template", "default/failed"], tmp_path)
