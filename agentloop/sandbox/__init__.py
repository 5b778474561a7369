"""Sandboxes: where programs run. `open_sandbox` is the one way from a name or a profile to a backend."""

from __future__ import annotations

import math
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentloop.errors import UserError, unknown_name
from agentloop.types import Limits, backstop, memory_fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentloop.protocols import Sandbox
    from agentloop.types import Execution, Job, Json

BACKENDS = ("docker", "local", "local-reduced", "e2b")
"""Each is the name of a built-in profile too."""
SPECS = ("auto", "any", *BACKENDS)
OWN_KEYS: dict[str, dict[str, Any]] = {
    "docker": {"recipe": str, "cpus": int | float, "interpreter": str},
    "e2b": {"template": str, "timeout": int, "domain": str},
}
"""What only one backend's profiles may set."""
PROFILE_KEYS = ("description", "backend", "limits", *(key for keys in OWN_KEYS.values() for key in keys))
INTERPRETERS = ("forked", "new")


def open_sandbox(spec: str, *, lanes: int, progress: Callable[[str], None] = lambda line: None) -> Sandbox:
    """The sandbox of a spec, not yet started: a built-in profile's name (see `BACKENDS`), a profile's path, or a word.

    `auto` is docker where an engine answers, else local, which never falls below namespaces by itself. `any` is `auto`
    that goes on at local-reduced where there are no namespaces: for demonstrations. `progress` gets a line for each
    step of what takes long (building an image). Raises `UserError`.
    """
    if spec in ("auto", "any"):
        spec = _best(reduced=spec == "any")
    if spec in BACKENDS:
        return _from_profile(_built_in() / f"{spec}.toml", lanes, progress)
    if not spec.endswith(".toml"):
        raise unknown_name("sandbox", spec, SPECS)
    return _from_profile(Path(spec), lanes, progress)


def _best(*, reduced: bool) -> str:
    from agentloop.sandbox import engine, local

    if engine.available(_built_in() / "docker").engine:
        return "docker"
    return "local-reduced" if reduced and local.why_not("namespaces") else "local"


def _backend(name: str, lanes: int, progress: Callable[[str], None], settings: dict[str, Any]) -> Sandbox:
    if name == "docker":
        from agentloop.sandbox.docker import DockerSandbox

        return DockerSandbox(settings.pop("recipe", _built_in() / "docker"), lanes=lanes, progress=progress, **settings)
    if name == "e2b":
        from agentloop.sandbox.e2b import E2BSandbox

        return E2BSandbox(lanes=lanes, **settings)
    from agentloop.sandbox.local import LocalSandbox

    return LocalSandbox(lanes=lanes, reduced=name == "local-reduced")


def _built_in() -> Path:
    """The folder of the built-in profiles, and of docker's recipe."""
    from agentloop.catalog import root

    return root() / "sandboxes"


def _from_profile(path: Path, lanes: int, progress: Callable[[str], None]) -> Sandbox:
    try:
        profile = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"sandbox profile {path}: {error}") from error
    for key in profile:
        if key not in PROFILE_KEYS:
            raise unknown_name(f"key of sandbox profile {path}", key, PROFILE_KEYS)
    if "backend" not in profile:
        raise UserError(f"sandbox profile {path}: there is no backend: {', '.join(BACKENDS)}")
    backend = str(profile["backend"])
    if backend not in BACKENDS:
        raise unknown_name(f"backend of sandbox profile {path}", backend, BACKENDS)
    settings: dict[str, Any] = {}
    for owner, keys in OWN_KEYS.items():
        given = {key: profile[key] for key in keys if key in profile}
        if given and owner != backend:
            raise UserError(f"sandbox profile {path}: {', '.join(given)} are for the {owner} backend only")
        for key, value in given.items():
            if isinstance(value, bool) or not isinstance(value, keys[key]) or value in ("", 0) or str(value)[0] == "-":
                raise UserError(f"sandbox profile {path}: {key} = {value!r} cannot be")
        settings |= given
    if settings.get("interpreter", INTERPRETERS[0]) not in INTERPRETERS:
        raise unknown_name(f"interpreter of sandbox profile {path}", settings["interpreter"], INTERPRETERS)
    if "recipe" in settings:
        settings["recipe"] = path.resolve().parent / settings["recipe"]
        if not (settings["recipe"] / "Dockerfile").is_file():
            raise UserError(f"sandbox profile {path}: there is no {settings['recipe'] / 'Dockerfile'}")
    sandbox = _backend(backend, lanes, progress, settings)
    limits = profile.get("limits", {})
    known = {field.name: type(getattr(Limits(), field.name)) for field in fields(Limits)}
    for key, value in limits.items():
        if key not in known:
            raise unknown_name(f"limit of sandbox profile {path}", key, known)
        if isinstance(value, bool) or not isinstance(value, int | known[key]) or not 0 < value < math.inf:
            raise UserError(f"sandbox profile {path}: limits.{key} = {value!r} is no positive {known[key].__name__}")
        if key == "memory" and (fault := memory_fault(value)):
            raise UserError(f"sandbox profile {path}: limits.memory: {fault}")
    if "wall" not in limits and (wall := backstop(limits.get("cpu", 0.0))) > Limits().wall:
        limits = {**limits, "wall": wall}
    return Limited(sandbox, limits) if limits else sandbox


class Limited:
    """A sandbox in which every job has these limits in place of its problem's; they are part of the environment."""

    def __init__(self, sandbox: Sandbox, limits: dict[str, Any]) -> None:
        self._sandbox, self._limits = sandbox, limits
        self.name, self.lanes = sandbox.name, sandbox.lanes

    async def start(self) -> dict[str, Json]:
        """See `Sandbox.start`."""
        return {**await self._sandbox.start(), "limits": self._limits}

    async def execute(self, job: Job) -> Execution:
        """See `Sandbox.execute`."""
        return await self._sandbox.execute(replace(job, limits=replace(job.limits, **self._limits)))

    async def close(self) -> None:
        """See `Sandbox.close`."""
        await self._sandbox.close()
