"""The Docker engine as this project uses it: connection, the image of a recipe, and what dead owners left behind.

All functions here block: call them in a thread. The `docker` SDK is imported where used (0.2 s).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentloop.errors import AgentloopError, SandboxError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from docker import DockerClient

REPOSITORY = "agentloop-sandbox"
LANE, OWNER, HOST, SESSION = "agentloop.lane", "agentloop.owner", "agentloop.host", "agentloop.session"
PACKAGES = "/etc/agentloop-packages"
"""Where a recipe leaves one "package version" a line."""
TIMEOUT = 60
"""Seconds that one call to the engine may take."""


@dataclass(frozen=True, slots=True)
class Availability:
    """What `agentloop doctor` shows. `engine` is the engine's version, or None and `why` says what is wrong."""

    engine: str | None
    why: str
    image: str
    built: bool


def connect() -> DockerClient:
    """A client of the engine that the environment names (`DOCKER_HOST`, else the usual socket).

    Raises `UserError` where none answers or where it cannot run Linux containers.
    """
    import docker
    from requests import RequestException

    try:
        _knock(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
        client = docker.from_env(timeout=TIMEOUT, max_pool_size=32)
        system = client.info().get("OSType")
    except (docker.errors.DockerException, RequestException, OSError) as error:
        raise UserError(f"no Docker engine answers ({_one_line(error)}); start it, or use --sandbox local") from error
    if system != "linux":
        client.close()
        raise UserError("the Docker engine runs no Linux containers; switch it to Linux containers")
    return client


def _knock(host: str) -> None:
    """Raise `OSError` where nobody listens on a unix socket; the SDK would leak its socket and say it in ten lines."""
    if host.startswith("unix://") and sys.platform != "win32":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(host.removeprefix("unix://"))


def available(recipe: Path) -> Availability:
    """Whether an engine answers and has the image of this recipe. Never raises."""
    image = image_name(recipe)
    try:
        with contextlib.closing(connect()) as client, faults("look for the image"):
            built = bool(client.images.list(name=image))
            return Availability(str(client.version()["Version"]), "", image, built)
    except AgentloopError as error:
        return Availability(None, str(error), image, False)


@contextlib.contextmanager
def faults(doing: str) -> Iterator[None]:
    """What the engine or the way to it raises becomes a `SandboxError`."""
    import docker
    from requests import RequestException

    try:
        yield
    except (docker.errors.DockerException, RequestException, OSError) as error:
        raise SandboxError(f"docker: cannot {doing}: {_one_line(error)}") from error


def answers(client: DockerClient) -> bool:
    """Whether the engine does."""
    try:
        with faults("reach the engine"):
            return bool(client.ping())
    except SandboxError:
        return False


def _one_line(error: Exception) -> str:
    explanation = getattr(error, "explanation", None) or str(error)
    return " ".join(str(explanation).split())[:300]


# -- the image -----------------------------------------------------------------------------------------------------


def image_name(recipe: Path) -> str:
    """The image's name, made of the content of the recipe's folder: another recipe is another image."""
    content = hashlib.sha256()
    for path in sorted(path for path in recipe.rglob("*") if path.is_file()):
        content.update(f"{path.relative_to(recipe)}\0".encode() + path.read_bytes() + b"\0")
    return f"{REPOSITORY}:{content.hexdigest()[:12]}"


def ensure_image(client: DockerClient, recipe: Path, progress: Callable[[str], None]) -> str:
    """The id of the recipe's image, built first where it is missing.

    `progress` gets a line for each step of a build. Raises `UserError` with the command to try when it fails.
    """
    import docker

    name = image_name(recipe)
    with faults("look for the image"), contextlib.suppress(docker.errors.ImageNotFound):
        return str(client.images.get(name).id)
    progress(f"building {name} from {recipe / 'Dockerfile'} (once; a few minutes)")
    failure = ""
    with faults(f"build {name}"):
        for event in client.api.build(path=str(recipe), tag=name, rm=True, forcerm=True, decode=True, timeout=1800):
            failure = event.get("error", failure)
            if line := event.get("stream", "").strip():
                progress(line)
    if failure:
        message = " ".join(failure.split())
        raise UserError(f"the sandbox image cannot be built ({message}); to see more: docker build -t {name} {recipe}")
    with faults("find the image just built"):
        return str(client.images.get(name).id)


def packages(client: DockerClient, image: str) -> str:
    """The list of packages that the image's build left in it."""
    import io
    import tarfile

    with faults("read the image's packages"):
        container = client.containers.create(image, ["true"], network_mode="none", labels=owner_labels())
        try:
            chunks, _ = container.get_archive(PACKAGES)
            archive = b"".join(chunks)
        finally:
            container.remove(force=True, v=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile(Path(PACKAGES).name)
        return file.read().decode() if file else ""


# -- owners --------------------------------------------------------------------------------------------------------


def owner_labels() -> dict[str, str]:
    """Labels that say who owns a container: this process, and the process table in which its number has a meaning."""
    return {LANE: "1", OWNER: f"{os.getpid()}:{_started(os.getpid())}", HOST: _host()}


def _host() -> str:
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()}:{Path('/proc/self/ns/pid').readlink()}"
    return f"{socket.gethostname()}:{platform.system()}"


def boot() -> str:
    """Tells this start of the machine from any other, '' where the kernel has no word for it."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _started(pid: int) -> str:
    """Tells a process from a later one with the same number: the boot and the clock tick that it started at."""
    with contextlib.suppress(OSError):
        return f"{boot()}:{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    return ""


def _alive(owner: str) -> bool:
    pid, _, started = owner.partition(":")
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        pass  # somebody else's process: it lives
    except (OSError, ValueError):
        return False
    return _started(int(pid)) == started


def dead(labels: dict[str, str]) -> bool:
    """Whether the owner that these labels name was a process of this machine and is gone."""
    return labels.get(HOST) == _host() and not _alive(labels.get(OWNER, ""))


def reap(client: DockerClient) -> list[str]:
    """Remove the lanes whose owner, a process of this machine, is dead; their names. Other machines' are left alone."""
    removed = []
    with faults("look for left lanes"):
        for container in client.containers.list(all=True, filters={"label": [LANE, f"{HOST}={_host()}"]}, sparse=True):
            if dead(labels_of(container)):
                remove(client, str(container.id))
                removed.append(str(container.attrs["Names"][0]).lstrip("/"))
    return removed


def labels_of(container: Any) -> dict[str, str]:
    """The labels of a container from a sparse listing."""
    return dict(container.attrs.get("Labels") or {})


def remove(client: DockerClient, container: str) -> None:
    """Kill and remove a container with its volumes, and return when it is gone; fine if it goes by itself."""
    import docker

    with contextlib.suppress(docker.errors.NotFound):
        try:
            client.api.remove_container(container, force=True, v=True)
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            client.api.wait(container, condition="removed")  # it ended a moment ago and its removal is on the way
