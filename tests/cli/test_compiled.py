"""A study with C++ problems from beginning to end: compiled, repaired after a compile error and a wrong answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Cli

PROBLEM = {
    "id": "sum", "language": "cpp", "statement": "Read numbers, print their sum.",
    "visible": [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "\n", "stdout": "0\n"}],
    "hidden": [{"stdin": "5 6 7\n", "stdout": "18\n"}],
}  # fmt: skip
CALL = {"args": [1], "value": 2}
SCRIPT = r"""
[[rule]]  # third: the wrong answer stands in the last message
last = 'must give: 3'
reply = '''
```cpp
#include <iostream>
int main() { long s = 0, x; while (std::cin >> x) s += x; std::cout << s << std::endl; }
```
'''

[[rule]]  # second: the compiler's message does
last = 'was not declared in this scope'
reply = '''
```cpp
#include <iostream>
int main() { long s = 1, x; while (std::cin >> x) s += x; std::cout << s << std::endl; }
```
'''

[[rule]]
reply = '''
```cpp
int main() { std::cout << summ; }
```
'''
"""


def test_a_cpp_problem_is_repaired(tmp_path: Path, cli: Cli, sandbox: str) -> None:
    if not Path("/usr/bin/g++").exists():
        pytest.skip("no g++ on this machine (apt install g++)")
    (tmp_path / "sum.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    (tmp_path / "model.toml").write_text(SCRIPT)
    done = cli(
        "run", "--workload", "jsonl", "--data", "sum.jsonl", "--strategy", "feedback_loop", "--iterations", "3",
        "--model", "scripted:model.toml", "--sandbox", sandbox, "--out", "runs/sum",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(cli("report", "runs/sum", "--json").stdout)["rows"]
    assert row["iterations"]["total"] == 3
    assert (row["hidden"]["initial"], row["hidden"]["final"]) == (0, 1)
    shown = cli("show", "runs/sum", "1").stdout
    assert "compile_error" in shown
    assert "was not declared in this scope" in shown
    assert cli("replay", "runs/sum").returncode == 0


def test_a_function_in_another_language_is_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "f.jsonl").write_text(
        json.dumps({**PROBLEM, "entry_point": "f", "visible": [], "hidden": [CALL]}) + "\n"
    )
    (tmp_path / "model.toml").write_text(SCRIPT)
    done = cli(
        "run", "--workload", "jsonl", "--data", "f.jsonl", "--strategy", "direct", "--model", "scripted:model.toml"
    )
    assert done.returncode == 2
    assert "f.jsonl line 1: field 'entry_point': a program in cpp reads stdin" in done.stderr
