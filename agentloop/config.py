"""An experiment: what is run, frozen. TOML in, defaults filled, unknown keys refused with the nearest known one.

The same words are keys of an experiment file, options of `agentloop run` and arguments of `agentloop.run`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentloop.errors import NOT_UTF_8, UserError, missing, unknown_name


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class WorkloadConfig(_Part):
    """Which problems."""

    name: str = "humaneval"
    """A built-in workload (see `agentloop list`), an installed one, or the path of a .py file with `load(data)`."""
    data: str | None = None
    """The data file, where the set is not in a package."""
    validated: str | None = None
    """The file that `agentloop validate` wrote: its limits hold, its quarantined problems are left out."""
    problems: list[str] = Field(default_factory=list)
    """Ids or globs, such as `HumanEval/1*`; empty: all."""
    every: int = Field(default=1, ge=1)
    """Take each n-th of them, counted in the order of the data set."""
    offset: int = Field(default=0, ge=0)
    """Begin at this one."""
    limit: int | None = Field(default=None, ge=1)
    """At most so many."""


class ModelConfig(_Part):
    """A model and how it is sampled."""

    name: str
    """As LiteLLM names it (`openai/gpt-4o`), `local/NAME`, or `scripted:FILE`."""
    label: str = ""
    """Its name in tables; default: `name`."""
    solver: bool = True
    """Whether attempts are made with it; `false`: it only plays the roles that strategies give it."""
    api_base: str | None = None
    """Base URL of a compatible server."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """Of first requests; strategies may ask warmer ones."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling; default: the provider's."""
    max_tokens: int = Field(default=1024, ge=1)
    """Longest reply, in tokens. (The experiment's `max_tokens` is the ceiling of the whole run.)"""
    api_key_env: str | None = None
    """The environment variable that holds the key, where it is not the provider's usual one."""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds that one call may take; default: 120 for providers, 600 for local models."""
    concurrency: int | None = Field(default=None, ge=1)
    """Requests open at once; default: the model's own."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Requests that may begin in a minute; default: no limit of ours."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Prompt and reply tokens of a minute; default: no limit of ours."""


class StrategyConfig(_Part):
    """A strategy and its settings."""

    name: str
    """A name of the catalog, or the path of a .py file."""
    label: str = ""
    """Its name in tables; default: `name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the strategy's `build`."""
    roles: dict[str, str] = Field(default_factory=dict)
    """Role -> label of another model of this experiment, e.g. explainer = "openai/gpt-4o"."""


class Experiment(_Part):
    """One experiment. `samples` attempts of each strategy on each problem with each model."""

    name: str = Field(default="experiment", pattern=r"^[^/\x00-\x1f]*[^/.\x00-\x1f][^/\x00-\x1f]*$")
    """Names the run directory (`runs/NAME`) where no other is given."""
    seed: int = 0
    """All draws derive from it."""
    samples: int = Field(default=1, ge=1, le=10_000)
    """Attempts of each strategy on each problem with each model; draws of one sample are shared by strategies."""
    iterations: int | None = Field(default=None, ge=1)
    """Candidates at most, for every strategy that takes `iterations` and whose own settings do not say."""
    workload: WorkloadConfig = Field(default_factory=WorkloadConfig)
    models: list[ModelConfig] = Field(min_length=1)
    strategies: list[StrategyConfig] = Field(min_length=1)
    sandbox: str = "auto"
    """`docker`, `local`, `local-reduced`, `e2b`, `auto` (docker where an engine answers, else local), `any` (`auto`
    that goes on at local-reduced where there are no namespaces), or a profile's path."""
    jobs: int = Field(default=2, ge=1)
    """Programs that run at once."""
    attempts: int = Field(default=8, ge=1)
    """Attempts that are open at once."""
    max_cost: float | None = Field(default=None, ge=0)
    """Ceiling for the whole run, US dollars."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Ceiling for the whole run, prompt and completion tokens."""


_INSTEAD = {
    ".py": "a strategy goes by --strategy {0}, a workload by --workload {0}",
    ".jsonl": "problems go by --workload jsonl --data {0}",
}
"""What was meant by a file that is no experiment."""


def load(path: Path) -> dict[str, Any]:
    """The tables of an experiment file. Raises `UserError` with file, line and fault."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        near = path.parent.glob("*.toml")
        raise missing(f"experiment {path}: no such file", path, sorted(near)) from error
    except IsADirectoryError as error:
        raise UserError(
            f"experiment {path}: it is a folder; a run goes on with the command that began it: its experiment or flags"
        ) from error
    except OSError as error:
        raise UserError(f"experiment {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"experiment {path}: {NOT_UTF_8}") from error
    except tomllib.TOMLDecodeError as error:
        use = _INSTEAD.get(path.suffix, "")
        told = f"it is no TOML; {use.format(path)}" if use else str(error)
        raise UserError(f"experiment {path}: {told}") from error


def override(tables: dict[str, Any], assignment: str) -> None:
    """Apply `key=value` (`-o`): dotted keys, list items by number or label, values as TOML or text.

    Raises `UserError`.
    """
    key, equals, raw = assignment.partition("=")
    if not equals or not key:
        raise UserError(f"-o {assignment}: write key=value, e.g. -o workload.limit=10")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    *parents, last = key.strip().split(".")
    if (first := (*parents, last)[0]) not in Experiment.model_fields:
        raise unknown_name(f"key of -o {assignment}", first, Experiment.model_fields)
    place: Any = tables
    for number, part in enumerate(parents):
        if isinstance(place, list):
            place = _item(place, part, assignment)
        else:
            following = (*parents[number + 1 :], last)[0]
            place = place.setdefault(part, [] if following.isdigit() else {})
    if isinstance(place, list):
        if not last.isdigit() or int(last) >= len(place):
            raise UserError(f"-o {assignment}: there is no item {last!r} (0 to {len(place) - 1})")
        place[int(last)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise UserError(f"-o {assignment}: {'.'.join(parents)} is a value, not a table")


def _item(items: list[Any], part: str, assignment: str) -> Any:
    if part.isdigit() and int(part) < len(items):
        return items[int(part)]
    for item in items:
        if isinstance(item, dict) and part in (item.get("label"), item.get("name"), _stem(item)):
            return item
    names = [item.get("label") or _stem(item) or item.get("name") for item in items if isinstance(item, dict)]
    raise UserError(
        f"-o {assignment}: no item {part!r}; there are {', '.join(map(str, names))} (or 0 to {len(items) - 1})"
    )


def _stem(item: dict[str, Any]) -> str | None:
    """What a strategy that is a file is called."""
    name = str(item.get("name", ""))
    return Path(name).stem if name.endswith(".py") else None


def parse(tables: Mapping[str, Any], where: str = "experiment") -> Experiment:
    """The experiment of these tables. Raises `UserError` naming each bad key, with the nearest known one."""
    try:
        experiment = Experiment.model_validate(dict(tables))
    except ValidationError as error:
        raise UserError("; ".join(_explain(fault, where) for fault in error.errors()[:3])) from error
    for kind in ("models", "strategies"):
        labels = [label(item) for item in getattr(experiment, kind)]
        twice = sorted({name for name in labels if labels.count(name) > 1})
        if twice:
            raise UserError(f"{where}: two {kind} are called {twice[0]!r}: give one a label of its own")
    return experiment


def label(item: ModelConfig | StrategyConfig) -> str:
    """A model's or strategy's name in tables."""
    if item.label:
        return item.label
    return Path(item.name).stem if isinstance(item, StrategyConfig) and item.name.endswith(".py") else item.name


def _explain(fault: Any, where: str) -> str:
    place = [str(part) for part in fault["loc"]]
    key = ".".join(place)
    if fault["type"] == "extra_forbidden":
        part: Any = Experiment
        for name in place[:-1]:
            if name in Experiment.model_fields:
                part = {"workload": WorkloadConfig, "models": ModelConfig, "strategies": StrategyConfig}.get(name, part)
        what = f"key of {'.'.join(place[:-1])}" if place[:-1] else "key"
        return f"{where}: {unknown_name(what, place[-1], part.model_fields)}"
    if fault["type"] == "missing" or (fault["type"] == "too_short" and fault.get("input") == []):
        return f"{where}: key {key} is needed"
    return f"{where}: {key} = {fault.get('input')!r}: {fault['msg']}"
