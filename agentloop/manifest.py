"""The manifest of a run: what its results mean. A run may grow; what is there keeps its meaning.

Growing (more problems, samples, strategies, models) adds entries. Another value under an existing entry is refused with
the keys that differ: mixed results under one name are not a comparison.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentloop.errors import AgentloopError, UserError
from agentloop.hashing import digest, text_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agentloop.config import ModelConfig
    from agentloop.planning import Plan, PlannedStrategy
    from agentloop.types import Json

CATALOG = "catalog"
"""Folder of a run directory that holds copies of its strategy and template files."""


def model_params(config: ModelConfig) -> dict[str, Json]:
    """The sampling parameters that enter reply keys."""
    params = {"temperature": config.temperature, "max_tokens": config.max_tokens, "top_p": config.top_p}
    return {key: value for key, value in params.items() if value is not None}


def plan_manifest(plan: Plan) -> dict[str, Any]:
    """The part of a manifest that is known before anything is started."""
    experiment = plan.experiment
    return {
        "name": experiment.name,
        "seed": experiment.seed,
        "specs": {name: strategy.spec for name, strategy in plan.strategies.items()},
        "bases": {name: str(plan.base.absolute()) for name in plan.strategies},
        "workload": {"name": experiment.workload.name, **({"validated": plan.validated} if plan.validated else {})},
        "strategies": {name: strategy.manifest() for name, strategy in plan.strategies.items()},
        "models": {name: {"name": model.name, "params": model_params(model)} for name, model in plan.models.items()},
    }


def live_manifest(
    static: Mapping[str, Any], environment: Mapping[str, Json], identities: Mapping[str, Mapping[str, Json]]
) -> dict[str, Any]:
    """A plan's manifest with what live parts tell: the environment and who the models are."""
    return {
        **static,
        "environment": dict(environment),
        "environment_id": digest(dict(environment)),
        "models": {name: {**entry, "identity": dict(identities[name])} for name, entry in static["models"].items()},
    }


def merge(directory: Path, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> dict[str, Any]:
    """The old manifest grown by the new one. Raises `UserError` with every key whose value differs."""
    from agentloop import __version__

    if old is None:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return {"agentloop": __version__, "created": created, **new}
    before, now = _entries(old), _entries(new)
    differing = [
        f"{name}{'.' + key if key else ''} (was {_short(one)}, is {_short(other)})"
        for name, entry in now.items()
        if name in before
        for key, one, other in _differences(before[name], entry)
    ]
    if differing:
        raise UserError(
            f"{directory} holds results of another meaning; these differ: {'; '.join(differing[:6])}"
            f"{' ...' if len(differing) > 6 else ''}. Use a new --out (or a new label for the strategy or model)"
        )
    grown = {kind: {**old.get(kind, {}), **new.get(kind, {})} for kind in ("strategies", "models", "specs", "bases")}
    return {**old, **new, **grown, "name": old["name"]}


def _entries(manifest: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What has one meaning each: every strategy, every model, the environment, the workload, the seed; flattened."""
    whole = {key: manifest[key] for key in ("seed", "workload", "environment") if key in manifest}
    for kind in ("strategies", "models"):
        whole |= {f"{kind}.{name}": value for name, value in manifest.get(kind, {}).items()}
    return {name: _flat(value) for name, value in whole.items()}


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {place: value}
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{place}.{key}" if place else key)
    return flat


_ABSENT = "absent"


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    live = any(key.startswith("identity") for key in new)
    keys = [key for key in sorted({*old, *new}) if live or not key.startswith("identity")]
    pairs = [(key, old.get(key, _ABSENT), new.get(key, _ABSENT)) for key in keys]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:24] + "..."


def copies(directory: Path, label: str) -> Path:
    """Where a run keeps the files of a strategy: the folder of all, unless it needed one of its own."""
    own = _own(directory, label)
    return own if own.is_dir() else directory / CATALOG


def _own(directory: Path, label: str) -> Path:
    name = quote(label, safe="").replace(".", "%2E")
    if len(name) > 200:  # no file system takes more than 255
        name = f"{name[:150]}-{text_digest(label)[:16]}"
    return directory / CATALOG / "labels" / name


def copy_files(directory: Path, strategies: Mapping[str, PlannedStrategy]) -> None:
    """Copy every strategy and template file into the run directory, as `--frozen` replays read them.

    A strategy added later may have edited files of the old names: it gets a folder of its own. Raises `AgentloopError`.
    """
    for label, strategy in strategies.items():
        folder = copies(directory, label)
        try:
            if any(_text(_copy(folder, name)) not in (None, text) for name, text in strategy.files.items()):
                folder = _own(directory, label)
            for name, text in strategy.files.items():
                path = _copy(folder, name)
                if _text(path) != text:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise AgentloopError(f"cannot write the copies in {directory / CATALOG}: {error.strerror}") from error


def _copy(folder: Path, name: str) -> Path:
    kind, _, rest = name.partition(":")
    if kind == "style":
        return folder / "feedback_templates" / rest / "style.toml"
    path = folder / ("graphs" if kind == "strategy" else "feedback_templates") / rest
    return path.with_name(path.name + (".py" if kind == "strategy" else ".j2"))


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
