"""agentloop: a laboratory for generate-run-repair loops of code models. See the README and `agentloop --help`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "run"]

if TYPE_CHECKING:
    from pathlib import Path

    from agentloop.progress import Observer
    from agentloop.runner import Summary


def run(
    experiment: str | Path | dict[str, Any], out: str | Path, *, observer: Observer | None = None, **overrides: Any
) -> Summary:
    """Run an experiment (a TOML file's path, or its tables) into the directory `out`; resumes what is there.

    `overrides` are top-level keys of the experiment (`samples=3`, `sandbox="local"`), as `agentloop run` takes them.
    Raises `agentloop.errors.UserError` before anything is spent. Blocking; inside a running event loop await
    `agentloop.runner.run`.
    """
    import asyncio
    from pathlib import Path

    from agentloop import config, planning, runner

    tables = dict(experiment) if isinstance(experiment, dict) else config.load(Path(experiment))
    base = Path.cwd() if isinstance(experiment, dict) else Path(experiment).absolute().parent
    plan = planning.make_plan(config.parse({**tables, **overrides}), base)
    return asyncio.run(runner.run(plan, Path(out), observer))
