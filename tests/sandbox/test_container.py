"""The local sandbox inside a default container, as root and as an ordinary user: the same cases, the same verdicts.

Such a container allows no new namespaces, so it is the reduced level; the full one says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandbox.conftest import NOBODY


@pytest.mark.parametrize("user", [0, NOBODY], ids=["root", "user"])
def test_all_cases_in_a_container(user: int, readable_copy: Path, need: Callable[[str], None]) -> None:
    need("docker")
    from docker.errors import ContainerError

    from agentloop.catalog import root
    from agentloop.sandbox.engine import connect, image_name

    client = connect()
    try:

        def run(level: str) -> bytes:
            return client.containers.run(
                image_name(root() / "sandboxes" / "docker"),
                ["python3", "-B", "/src/tests/sandbox/run_cases.py", level, "1"],
                user=str(user),
                environment={"PYTHONPATH": "/src"},
                volumes=[f"{readable_copy}:/src:ro"],
                remove=True,
                stderr=True,
            )

        found = json.loads(run("reduced").splitlines()[-1])
        assert {name: wrong for name, wrong in found.items() if wrong} == {}
        assert len(found) > 90
        with pytest.raises(ContainerError, match="new namespaces: Operation not permitted"):
            run("full")
    finally:
        client.close()
