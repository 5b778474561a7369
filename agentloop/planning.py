"""From an experiment to a plan: every name resolved, every file checked, every problem loaded, nothing spent."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentloop.catalog import Kit, Strategy, load_strategy, placed, sandbox_spec
from agentloop.config import Experiment, ModelConfig, StrategyConfig, label
from agentloop.errors import UserError, unknown_name
from agentloop.hashing import text_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langgraph.graph.state import CompiledStateGraph

    from agentloop.catalog import Style
    from agentloop.types import Json, Problem

_NODES_AN_ITERATION = 12
"""No shared loop takes more steps for one candidate; the recursion limit is a fuse well above it."""


@dataclass(frozen=True)
class PlannedStrategy:
    """A strategy with all its settings, its graph, and the texts of every file it was built from."""

    label: str
    spec: str
    """Where it was found: a catalog name, or the absolute path of its file."""
    strategy: Strategy
    settings: Mapping[str, Any]
    roles: Mapping[str, str]
    files: Mapping[str, str]
    graph: CompiledStateGraph[Any, Any, Any, Any]
    calls: int
    """Model calls of one attempt at most."""
    fuse: int

    def manifest(self) -> dict[str, Json]:
        """What must not change while results of this label are kept."""
        return {
            "name": self.strategy.name,
            "digest": self.strategy.digest,
            "settings": dict(self.settings),
            "roles": dict(self.roles),
            "oracle": self.strategy.oracle,
            "files": {name: text_digest(text) for name, text in self.files.items() if text},
        }


Cell = tuple["Problem", str, int, PlannedStrategy]
"""One attempt to make: problem, model label, sample, strategy."""


@dataclass(frozen=True)
class Plan:
    """An experiment and what it means today."""

    experiment: Experiment
    base: Path
    """Directory that relative paths of the experiment start from."""
    problems: list[Problem]
    strategies: Mapping[str, PlannedStrategy]
    models: Mapping[str, ModelConfig]
    validated: str = ""
    """Digest of the validation that the problems went through, '' without one."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Chosen problems that are quarantined, and why."""
    validated_in: str = ""
    """The backend that the validation was made in."""

    @property
    def solvers(self) -> list[str]:
        """Labels of the models that attempts are made with; the others only play roles."""
        return [name for name, model in self.models.items() if model.solver]

    @property
    def attempts(self) -> int:
        """How many attempts the plan has."""
        return len(self.problems) * len(self.solvers) * len(self.strategies) * self.experiment.samples

    @property
    def calls(self) -> int:
        """Model calls at most."""
        a_problem = sum(strategy.calls for strategy in self.strategies.values())
        return len(self.problems) * len(self.solvers) * self.experiment.samples * a_problem

    def cells(self) -> Iterator[Cell]:
        """Every attempt, those that share first replies side by side."""
        for problem in self.problems:
            for model in self.solvers:
                for sample in range(self.experiment.samples):
                    for strategy in self.strategies.values():
                        yield problem, model, sample, strategy


def make_plan(experiment: Experiment, base: Path) -> Plan:
    """Resolve and check everything that can be checked without a model or a sandbox. Raises `UserError`."""
    from agentloop.models import open_model
    from agentloop.validation import load_sound
    from agentloop.workloads import select

    models = {label(model): model for model in experiment.models}
    if not any(model.solver for model in models.values()):
        raise UserError("no model makes attempts: every one says solver = false")
    for given in models.values():
        if given.name.startswith(("local/", "scripted:")):  # of others only their servers know
            open_model(model_name(given, base))
    sandbox_spec(experiment.sandbox, base)
    strategies = {}
    styles: dict[str, Style] = {}
    for config in experiment.strategies:
        for role, model in config.roles.items():
            if model not in models:
                raise unknown_name(f"model for role {role!r} of strategy {label(config)!r}", model, models)
        strategies[label(config)] = plan_strategy(config, experiment.iterations, base, styles=styles)
    _one_text_a_name(strategies)
    workload = experiment.workload
    data = placed(workload.data, base) if workload.data else None
    name = str(placed(workload.name, base)) if workload.name.endswith(".py") else workload.name
    path = placed(workload.validated, base) if workload.validated else None
    sound = load_sound(name, data, path)
    quarantined = sound.quarantined
    chosen = select(sound.problems, workload.problems, workload.every, workload.offset, workload.limit)
    problems = [problem for problem in chosen if problem.id not in quarantined]
    if not problems:
        raise UserError(f"every problem that was chosen is quarantined by {workload.validated}")
    left_out = {problem.id: quarantined[problem.id] for problem in chosen if problem.id in quarantined}
    return Plan(experiment, base, problems, strategies, models, sound.digest, left_out, sound.backend)


def model_name(config: ModelConfig, base: Path) -> str:
    """A model's name as `open_model` takes it: a script's path starts from `base`."""
    script = config.name.removeprefix("scripted:")
    return config.name if script == config.name else f"scripted:{placed(script, base)}"


def plan_strategy(
    config: StrategyConfig,
    iterations: int | None,
    base: Path | None,
    frozen: Path | None = None,
    styles: dict[str, Style] | None = None,
    sketch: bool = False,
) -> PlannedStrategy:
    """One strategy built with its settings; `frozen`: from this copy of the catalog. Raises `UserError`.

    `styles` keeps loaded styles from one call to the next. `sketch`: to be looked at, its style may lack templates.
    """
    kit = Kit(base, frozen, styles={} if styles is None else styles, sketch=sketch)
    strategy = load_strategy(config.name, base, frozen)
    given = dict(config.settings)
    if iterations is not None and "iterations" in strategy.settings():
        given.setdefault("iterations", iterations)
    settings = strategy.resolve(given, kit)
    try:
        uncompiled = strategy.graph(kit, settings)
        graph = uncompiled.compile()
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"strategy {config.name!r}: build failed: {type(error).__name__}: {error}") from error
    budget = settings.get("iterations", 1)
    budget = budget if isinstance(budget, int) else 1
    asking = sum(_asks(node.runnable) for node in uncompiled.nodes.values())
    return PlannedStrategy(
        label=label(config),
        spec=str(strategy.path) if "/" in config.name or config.name.endswith(".py") else config.name,
        strategy=strategy,
        settings=settings,
        roles=dict(config.roles),
        files=kit.files,
        graph=graph,
        calls=max(1, budget) * max(1, asking),
        fuse=50 + _NODES_AN_ITERATION * max(1, budget),
    )


def _asks(runnable: Any) -> int:
    function = getattr(runnable, "afunc", None) or getattr(runnable, "func", None)
    return int(getattr(function, "asks", 0))


def _one_text_a_name(strategies: Mapping[str, PlannedStrategy]) -> None:
    texts: dict[str, str] = {}
    for strategy in strategies.values():
        for name, text in strategy.files.items():
            if texts.setdefault(name, text) != text:
                raise UserError(f"two different files are called {name!r}: rename one, the run keeps a copy of each")
