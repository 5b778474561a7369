"""Running parts of agentloop as an ordinary user, whoever runs the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentloop.sandbox.local import reachable

NOBODY = 65534
ROOT = Path(__file__).resolve().parent.parent.parent
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def readable_copy() -> Iterator[Path]:
    """A copy of the package that every user may read, wherever the checkout stands."""
    with tempfile.TemporaryDirectory(prefix="agentloop-test-") as folder:
        Path(folder).chmod(0o755)
        # The profiles where an installed package has them.
        places = {"agentloop": "", "tests/sandbox": "", "sandboxes": "agentloop/_catalog/sandboxes"}
        for name, place in places.items():
            shutil.copytree(ROOT / name, Path(folder, place or name), ignore=shutil.ignore_patterns("__pycache__"))
        yield Path(folder)


@pytest.fixture(scope="session")
def run_as(readable_copy: Path) -> Run:
    """`run_as(root, script, *args)`: a script of tests/sandbox as root or as an ordinary user; else a skip."""

    def run(root: bool, script: str, *args: str) -> subprocess.CompletedProcess[str]:
        if root and os.geteuid() != 0:
            pytest.skip("needs root")
        drop = not root and os.geteuid() == 0
        python = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
        if drop and not reachable(python):
            python = "/usr/bin/python3"
            version = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            if not Path(python).exists() or subprocess.run(version, check=False).returncode != 0:
                pytest.skip("no Python 3.11 or newer that another user can reach")
        return subprocess.run(
            [python, "-B", str(readable_copy / "tests/sandbox" / script), *args],
            user=NOBODY if drop else None,
            group=NOBODY if drop else None,
            extra_groups=[] if drop else None,
            env={"PYTHONPATH": str(readable_copy), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    return run
