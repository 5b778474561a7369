"""An experiment's tables from a file and flags; what a flag names is relative to where the command was typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentloop.config import load, override
from agentloop.errors import UserError


def assemble(
    experiment: Path | None,
    flags: dict[str, Any],
    workload: dict[str, Any],
    data: Path | None,
    strategies: list[str],
    models: list[str],
    api_base: str | None,
    overrides: list[str],
) -> tuple[dict[str, Any], Path]:
    """The tables of an experiment and the directory that their paths start from. Flags that are None say nothing.

    A `--strategy` or `--model` that the file knows (by label or name) keeps the file's settings; all others of the file
    are left out then. Raises `UserError`.
    """
    tables = load(experiment) if experiment else {}
    base = experiment.absolute().parent if experiment else Path.cwd()
    tables.update({key: value for key, value in flags.items() if value is not None})
    if flags["sandbox"] and flags["sandbox"].endswith(".toml"):
        tables["sandbox"] = str(Path(flags["sandbox"]).expanduser().absolute())
    part = tables.setdefault("workload", {})
    for key in ("models", "strategies"):
        items = tables.get(key, [])
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise UserError(f"{experiment}: {key} must be tables, each under [[{key}]]")
    if not isinstance(part, dict):
        raise UserError(f"{experiment}: workload must be a table, under [workload]")
    part.update({key: value for key, value in workload.items() if value is not None})
    if workload["name"] and workload["name"].endswith(".py"):
        part["name"] = str(Path(workload["name"]).absolute())
    if data is not None:
        part["data"] = str(data.absolute())
    if strategies:
        tables["strategies"] = _chosen(tables.get("strategies", []), strategies)
    if models:
        tables["models"] = _chosen(tables.get("models", []), models)
    if api_base is not None:
        for model in tables.get("models", []):
            if not str(model.get("name", "")).startswith(("local/", "scripted:")):  # those have no server to be at
                model["api_base"] = api_base
    for assignment in overrides:
        override(tables, assignment)
    if not tables.get("models"):
        raise UserError("no model is given: --model local/qwen2.5-coder-0.5b, --model openai/gpt-4o, ...")
    if not tables.get("strategies"):
        raise UserError("no strategy is given: --strategy feedback_loop, ... (`agentloop list` shows them)")
    tables.setdefault("name", experiment.stem if experiment else _name(part))
    return tables, base


def _name(workload: dict[str, Any]) -> str:
    """What an experiment of flags is called: as its data file, else as its workload."""
    source = Path(str(workload.get("data") or workload.get("name", "humaneval")))
    return source.name.partition(".")[0] or source.name


def _chosen(known: list[dict[str, Any]], wanted: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for spec in wanted:
        own = [item for item in known if spec == (item.get("label") or item.get("name"))]
        own = own or [item for item in known if spec == item.get("name")]
        found += own or [_entry(spec)]
    return found


def _entry(spec: str) -> dict[str, Any]:
    """An entry that the file lacks. Paths are taken from here, not from beside the file; labels stay as typed."""
    if spec.startswith("scripted:"):
        return {"name": f"scripted:{Path(spec.removeprefix('scripted:')).expanduser().absolute()}", "label": spec}
    if spec.endswith(".py"):
        return {"name": str(Path(spec).absolute())}
    return {"name": spec}
