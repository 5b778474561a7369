"""`run --dry-run`: what a plan would do and take at most. Starts nothing, spends nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from agentloop.budget import CHARACTERS_PER_TOKEN
from agentloop.manifest import merge, plan_manifest
from agentloop.snapshot import connect
from agentloop.store import FILE, read_manifest

if TYPE_CHECKING:
    from agentloop.config import ModelConfig
    from agentloop.planning import Plan

FEEDBACK_TOKENS = 1000
"""Room for a prompt's own words and one feedback (what a program printed is cut before it is told)."""


def forecast(plan: Plan, directory: Path) -> Iterator[str]:
    """The plan in lines, with a ceiling of calls, tokens and, where prices are known, of money.

    Raises `UserError` where the directory holds results of another meaning, as the run would.
    """
    experiment, problems = plan.experiment, plan.problems
    if (directory / FILE).exists():
        _check_growth(plan, directory)
    without = [problem.id for problem in problems if not problem.visible.tests]
    yield f"run         {experiment.name} into {directory}" + (" (goes on)" if (directory / FILE).exists() else "")
    source = Path(experiment.workload.name)  # a file of one's own by the path that was typed
    chosen = source.relative_to(Path.cwd()) if source.is_relative_to(Path.cwd()) else source
    yield f"problems    {len(problems)} of {chosen}: {_some([problem.id for problem in problems])}"
    if without:
        yield f"            {len(without)} of them without a visible suite: {_some(without)}"
    for id, why in plan.left_out.items():
        yield f"left out    {id}: {why}"
    for name, strategy in plan.strategies.items():
        settings = ", ".join(f"{key}={value}" for key, value in strategy.settings.items())
        yield f"strategy    {name} ({settings})"
    for name, model in plan.models.items():
        yield f"model       {name} (temperature {model.temperature:g}, replies of {model.max_tokens:,} tokens at most)"
    yield f"sandbox     {experiment.sandbox}, {experiment.jobs} programs at once"
    yield f"attempts    {plan.attempts:,} ({experiment.samples} of each strategy, problem and model)"
    yield f"calls       {plan.calls:,} at most (fewer where programs pass, and where strategies share first replies)"
    prompt = completion = cost = 0.0
    unknown = []
    for name, model in plan.models.items():
        asked, answered = _tokens(plan, model.max_tokens)
        prompt, completion = prompt + asked, completion + answered
        prices = _prices(model, plan.base)
        if prices is None:
            unknown.append(name)
        else:
            cost += asked * prices[0] + answered * prices[1]
    split = f"{prompt:,.0f} of prompts, {completion:,.0f} of replies"
    yield f"tokens      {prompt + completion:,.0f} at most, about: {split}"
    known = len(unknown) < len(plan.models)
    amount = "free" if not cost else f"${cost:,.2f} at most, about" if cost >= 0.01 else "under $0.01"
    parts = ([amount] if known else []) + [f"no price known for {name}" for name in unknown]
    yield f"cost        {'; '.join(parts)}"


def _check_growth(plan: Plan, directory: Path) -> None:
    db, copy = connect(directory / FILE)
    try:
        if db.execute("PRAGMA user_version").fetchone()[0]:  # else it was stopped before there was anything in it
            merge(directory, read_manifest(db), plan_manifest(plan))
    finally:
        db.close()
        if copy is not None:
            copy.cleanup()


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def _tokens(plan: Plan, longest: int) -> tuple[float, float]:
    """Prompt and reply tokens of one model at most: every call made, replies as long as may be, dialogues kept."""
    prompt = completion = 0.0
    for problem in plan.problems:
        statement = len(problem.statement) / CHARACTERS_PER_TOKEN
        for strategy in plan.strategies.values():
            calls = strategy.calls
            earlier = calls * (calls - 1) / 2  # the n-th call of a dialogue carries n - 1 replies and feedbacks
            prompt += calls * (statement + FEEDBACK_TOKENS) + earlier * (longest + FEEDBACK_TOKENS)
            completion += calls * longest
    samples = plan.experiment.samples
    return prompt * samples, completion * samples


def _prices(config: ModelConfig, base: Path) -> tuple[float, float] | None:
    """Dollars for a token of a prompt and of a reply, None where no price is known. Local models are free."""
    if config.name.startswith("local/"):
        return 0.0, 0.0
    if config.name.startswith("scripted:"):
        from agentloop.models.scripted import ScriptedModel
        from agentloop.planning import model_name

        return ScriptedModel(model_name(config, base)).prices
    if config.api_base is not None:
        return None  # a server of one's own, whatever its model is called
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    entry = litellm.model_cost.get(config.name) or litellm.model_cost.get(config.name.partition("/")[2])
    if not entry or "input_cost_per_token" not in entry:
        return None
    return float(entry["input_cost_per_token"]), float(entry.get("output_cost_per_token") or 0.0)
