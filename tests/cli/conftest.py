"""The command line as a user runs it: a process of its own, a scripted model, a real sandbox, four small problems."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Cli = Callable[..., "Done"]

PROBLEMS = [
    {
        "id": "double", "statement": "Write double(n): twice n.", "entry_point": "double",
        "visible": [{"args": [2], "value": 4}], "hidden": [{"args": [3], "value": 6}, {"args": [-1], "value": -2}],
    },
    {
        "id": "square", "statement": "Write square(n): n times n.", "entry_point": "square",
        "visible": [{"args": [2], "value": 4}], "hidden": [{"args": [3], "value": 9}],
    },
    {
        "id": "triple", "statement": "Write triple(n): three times n.", "entry_point": "triple",
        "visible": [{"args": [2], "value": 6}], "hidden": [{"args": [3], "value": 9}],
    },
    {
        "id": "half", "statement": "Write half(n): n / 2.", "entry_point": "half",
        "hidden": [{"args": [3], "value": 1.5}],
    },
]  # fmt: skip
"""double is repaired, square passes the visible suite only, triple is right; half has no visible suite, no program."""

SCRIPT = """
[model]
prompt_price = 1.0
completion_price = 2.0

[[rule]]  # the program that failed stands in the repair prompt
first = "double"
last = 'return n \\+ 3'
reply = '''
Twice, of course:
```python
def double(n):
    return n * 2
```
'''

[[rule]]
first = "double"
delay = 0.0
reply = '''
```python
def double(n):
    return n + 3
```
'''

[[rule]]
first = "square"
reply = '''
```python
def square(n):
    return n + n
```
'''

[[rule]]
first = "triple"
reply = '''
```python
def triple(n):
    return 3 * n
```
'''

[[rule]]
first = "half"
reply = "I would rather not."
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`cli(*arguments)` runs the command in the test's directory, in this process (imports cost seconds elsewhere)."""
    from agentloop.cli import main

    (tmp_path / "tmp").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("AGENTLOOP_NO_OUTSIDE", "1")

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["agentloop", *arguments])
        capsys.readouterr()
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return Done(status, *capsys.readouterr())

    return run


@pytest.fixture
def process(tmp_path: Path) -> Cli:
    """`process(*arguments)` runs the command in the test's directory, in a process of its own as a user does."""
    (tmp_path / "tmp").mkdir(exist_ok=True)

    def run(*arguments: str) -> Done:
        done = subprocess.run(command(*arguments), **settings(tmp_path), timeout=600)  # type: ignore[call-overload]
        return Done(done.returncode, done.stdout, done.stderr)

    return run


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error::ResourceWarning", "-m", "agentloop.cli", *arguments]


def settings(directory: Path, **environment: str) -> dict[str, object]:
    """Keyword arguments of `subprocess` for a command in a directory."""
    own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(directory / "tmp"), "NO_COLOR": "1", "AGENTLOOP_NO_OUTSIDE": "1"}
    return {
        "cwd": directory, "env": os.environ | own | environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
        "text": True,
    }  # fmt: skip


@pytest.fixture
def study(tmp_path: Path, sandbox: str) -> Path:
    """A directory with an experiment on the four problems: feedback_loop and resample, two programs at most."""
    write_study(tmp_path, sandbox)
    return tmp_path


@pytest.fixture(scope="session")
def first_run(tmp_path_factory: pytest.TempPathFactory, sandbox: str) -> Path:
    """A directory in which that experiment was run, by a process of its own."""
    directory = tmp_path_factory.mktemp("study")
    write_study(directory, sandbox)
    (directory / "tmp").mkdir()
    done = subprocess.run(command("run", "study.toml"), **settings(directory), timeout=600)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    (directory / "said").write_text(done.stdout)
    return directory


@pytest.fixture
def finished(tmp_path: Path, first_run: Path) -> Path:
    """A copy of that directory for one test."""
    shutil.copytree(first_run, tmp_path, dirs_exist_ok=True)
    return tmp_path


def write_study(directory: Path, sandbox: str) -> None:
    (directory / "toy.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    (directory / "script.toml").write_text(SCRIPT)
    (directory / "study.toml").write_text(f"""
iterations = 2
sandbox = "{sandbox}"

[workload]
name = "jsonl"
data = "toy.jsonl"

[[models]]
name = "scripted:script.toml"
label = "script"

[[strategies]]
name = "feedback_loop"

[[strategies]]
name = "resample"
""")
