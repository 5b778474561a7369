"""agentloop: a laboratory for generate-run-repair loops of code models. See the README and `agentloop --help`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "judge_programs", "run", "validate"]

if TYPE_CHECKING:
    from pathlib import Path

    from agentloop.judging import Judged, SuiteName
    from agentloop.progress import Observer
    from agentloop.runner import Summary
    from agentloop.validation import Validated


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

    _no_loop("agentloop.runner.run")
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
    unordered: bool = False,
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

    _no_loop("agentloop.judging.judge_programs")
    judging.suite_name(suite)
    sound = load_sound(workload, Path(data) if data else None, Path(validated) if validated else None)
    observer = observer or Quiet()
    work = judging.judge_programs(
        sound.problems,
        Path(programs),
        Path(out),
        suite=suite,
        sandbox=opened(sandbox, Path.cwd(), jobs, observer, validated_in=sound.backend),
        jobs=jobs,
        first_failure=first_failure,
        unordered=unordered,
        left_out=sound.left_out(suite),
        observer=observer,
    )
    return asyncio.run(work)


def validate(
    out: str | Path,
    *,
    workload: str = "humaneval",
    data: str | Path | None = None,
    sandbox: str = "auto",
    jobs: int = 2,
    observer: Observer | None = None,
) -> Validated:
    """Find by its references which tests of a workload are sound, into the file `out`, as `agentloop validate` does.

    Raises `agentloop.errors.UserError` for bad input before anything runs, `SandboxError` if the sandbox cannot be
    started. Blocking; inside a running event loop await `agentloop.validation.validate`.
    """
    import asyncio
    from pathlib import Path

    from agentloop import validation, workloads
    from agentloop.preflight import opened
    from agentloop.progress import Quiet

    _no_loop("agentloop.validation.validate")
    validation.check_target(Path(out))
    observer = observer or Quiet()
    problems = workloads.load(workload, Path(data) if data else None)
    where = opened(sandbox, Path.cwd(), jobs, observer)
    found = asyncio.run(validation.validate(problems, sandbox=where, jobs=jobs, observer=observer))
    validation.write(found, Path(out))
    return found


def _no_loop(coroutine: str) -> None:
    """Raises `UserError` inside a running event loop, which a blocking call would stop."""
    import asyncio

    from agentloop.errors import UserError

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UserError(f"this call blocks, and an event loop is running (a notebook has one): await {coroutine} instead")
