"""From a name or a profile to a sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentloop.errors import UserError
from agentloop.sandbox import open_sandbox
from agentloop.sandbox.docker import DockerSandbox
from agentloop.sandbox.local import available

PROFILES = Path(__file__).parents[2] / "sandboxes"


@pytest.mark.parametrize("name", ["docker", "local", "local-reduced", "e2b"])
async def test_a_name_and_its_profile_are_the_same_backend(name: str) -> None:
    for spec in (name, str(PROFILES / f"{name}.toml")):
        sandbox = open_sandbox(spec, lanes=3)
        assert (sandbox.name, sandbox.lanes) == (name, 3)
        await sandbox.close()


async def test_what_a_built_in_profile_says_holds_under_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sandboxes").mkdir()
    (tmp_path / "sandboxes" / "docker.toml").write_text('backend = "docker"\ncpus = 2.5\n')
    monkeypatch.setattr("agentloop.catalog.root", lambda: tmp_path)  # where the catalog stands
    sandbox = open_sandbox("docker", lanes=1)
    assert isinstance(sandbox, DockerSandbox)
    assert (sandbox.cpus, sandbox.recipe) == (2.5, tmp_path / "sandboxes" / "docker")
    await sandbox.close()


async def test_auto_without_an_engine_never_falls_below_namespaces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert open_sandbox("auto", lanes=1).name == "local"
    assert open_sandbox("any", lanes=1).name == ("local-reduced" if available()["namespaces"] else "local")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('backend = "dokcer"', "did you mean 'docker'"),
        ('bakend = "docker"', "did you mean 'backend'"),
        ('backend = "docker"\n[limits]\nmemori = 1', "did you mean 'memory'"),
        ('backend = "docker"\n[limits]\nwall = -1', r"limits.wall = -1 is no positive float"),
        ('backend = "docker"\n[limits]\nmemory = 1.5', r"limits.memory = 1.5 is no positive int"),
        ('backend = "docker"\n[limits]\nmemory = true', r"limits.memory = True is no positive int"),
        ('backend = "docker"\n[limits]\nmemory = 512', r"limits.memory: 512 bytes .*; 512 MiB are 536870912"),
        ('backend = "docker"\n[limits]\ncpu = inf', r"limits.cpu = inf is no positive float"),
        ('backend = "docker"\nrecipe = "nowhere"', "there is no .*nowhere/Dockerfile"),
        ('backend = "local"\ncpus = 2', "cpus are for the docker backend only"),
        ('backend = "local"\ntemplate = "base"', "template are for the e2b backend only"),
        ('backend = "e2b"\ntimeout = 0', "timeout = 0 cannot be"),
        ('backend = "e2b"\ntimeout = 1.5', r"timeout = 1.5 cannot be"),
        ("backend = ", "profile .*x.toml: Invalid value"),
        ("description = 'x'", "profile .*x.toml: there is no backend: docker, local"),
    ],
)
def test_a_wrong_profile_is_one_line_that_says_where(text: str, message: str, tmp_path: Path) -> None:
    profile = tmp_path / "x.toml"
    profile.write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        open_sandbox(str(profile), lanes=1)
    assert "\n" not in str(caught.value)


def test_a_missing_profile_and_an_unknown_name_are_told() -> None:
    with pytest.raises(UserError, match=r"none\.toml"):
        open_sandbox("none.toml", lanes=1)
    with pytest.raises(UserError, match="did you mean 'docker'"):
        open_sandbox("dockr", lanes=1)
