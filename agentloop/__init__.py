"""agentloop: a laboratory for generate-run-repair loops of code models. See the README and `agentloop --help`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "judge_programs", "run"]

if TYPE_CHECKING:
    from pathlib import Path

    from agentloop.judging import Judged, SuiteName
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


def judge_programs(
    programs: str | Path,
    out: str | Path,
    *,
    workload: str = "humaneval",
    data: str | Path | None = None,
    suite: SuiteName = "hidden",
    validated: str | Path | None = None,
    sandbox: str = "auto",
    jobs: int = 2,
    first_failure: bool = False,
    observer: Observer | None = None,
) -> Judged:
    """Judge the stored programs of a JSON lines file into the file `out`, as `agentloop judge` does; goes on with it.

    Raises `agentloop.errors.UserError` for bad input before anything runs, `SandboxError` if the sandbox cannot be
    started. Blocking; inside a running event loop await `agentloop.judging.judge_programs`.
    """
    import asyncio
    from pathlib import Path

    from agentloop import judging
    from agentloop.preflight import opened
    from agentloop.progress import Quiet
    from agentloop.validation import load_sound

    problems, left_out, _ = load_sound(workload, Path(data) if data else None, Path(validated) if validated else None)
    observer = observer or Quiet()
    work = judging.judge_programs(
        problems,
        Path(programs),
        Path(out),
        suite=suite,
        sandbox=opened(sandbox, Path.cwd(), jobs, observer),
        jobs=jobs,
        first_failure=first_failure,
        left_out=left_out,
        observer=observer,
    )
    return asyncio.run(work)
