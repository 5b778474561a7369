"""`agentloop run`: an experiment from a file, from flags, or from both; flags win."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agentloop.planning import Plan
    from agentloop.progress import Shown
    from agentloop.reader import Reading
    from agentloop.runner import Control, Summary


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(run)


def _text(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help)


def _count(help: str) -> Any:
    return typer.Option(metavar="N", min=1, help=help)


def run(
    experiment: Annotated[
        Path | None, typer.Argument(metavar="[EXPERIMENT.toml]", help="An experiment file.", show_default=False)
    ] = None,
    workload: Annotated[str | None, _text("NAME", "humaneval, mbpp, jsonl, FILE.py.  [default: humaneval]")] = None,
    problems: Annotated[
        list[str] | None, _text("ID", "Id or glob ('HumanEval/1*'); repeatable.  [default: all]")
    ] = None,
    data: Annotated[Path | None, _text("FILE", "The data file, where the set is not in a package.")] = None,
    validated: Annotated[Path | None, _text("FILE", "What `agentloop validate` wrote about the workload.")] = None,
    strategy: Annotated[list[str] | None, _text("NAME", "A strategy's name or .py file; repeatable.")] = None,
    model: Annotated[list[str] | None, _text("NAME", "openai/NAME, local/NAME, scripted:FILE; repeatable.")] = None,
    api_base: Annotated[str | None, _text("URL", "Base URL of a compatible server, for the models.")] = None,
    samples: Annotated[int | None, _count("Attempts of each strategy on each problem.  [default: 1]")] = None,
    iterations: Annotated[int | None, _count("Programs of one attempt at most.  [default: the strategy's]")] = None,
    limit: Annotated[int | None, _count("At most so many problems.  [default: all]")] = None,
    every: Annotated[int | None, _count("Take each n-th problem.  [default: 1]")] = None,
    sandbox: Annotated[
        str | None, _text("NAME", "docker, local, local-reduced, e2b, a profile.  [default: auto]")
    ] = None,
    jobs: Annotated[int | None, _count("Programs that run at once.  [default: 2]")] = None,
    out: Annotated[Path | None, _text("DIR", "Run directory; one that is there goes on.  [default: runs/NAME]")] = None,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", min=0, help="Most money for the whole run.")] = None,
    max_tokens: Annotated[int | None, _count("Most tokens for the whole run.")] = None,
    seed: Annotated[int | None, _text("N", "All draws derive from it.  [default: 0]")] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="KEY=VALUE", help="Set any key: -o models.0.temperature=0.2; repeatable."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print plan and ceiling of cost; start nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the last line only.")] = False,
) -> None:
    """Run an experiment, or go on with it.

    An attempt that is done is not done again. The first Ctrl-C lets the open attempts finish, the second stops at once;
    run again to go on. Status 3: faults remain, or it was stopped early.
    """
    from agentloop.progress import watch

    def planned() -> Plan:
        from agentloop.commands.assembly import assemble
        from agentloop.config import parse
        from agentloop.planning import make_plan

        tables, base = assemble(experiment, flags, chosen, data, strategy or [], model or [], api_base, override or [])
        return make_plan(parse(tables, str(experiment or "flags")), base)

    flags: dict[str, Any] = {
        "samples": samples, "iterations": iterations, "sandbox": sandbox, "jobs": jobs, "max_cost": max_cost,
        "max_tokens": max_tokens, "seed": seed,
    }  # fmt: skip
    chosen = {"name": workload, "problems": problems or None, "limit": limit, "every": every,
              "validated": str(validated.absolute()) if validated else None}  # fmt: skip
    if dry_run:
        from textwrap import fill

        from agentloop.commands.forecast import forecast

        plan = planned()
        for line in forecast(plan, _directory(plan, out)):
            print(fill(line, 100, subsequent_indent=" " * 12, break_on_hyphens=False, break_long_words=False))
        return
    with watch(quiet) as observer:
        observer.event("phase", text=f"checking {experiment or 'the plan'}")
        plan = planned()
        for id, why in plan.left_out.items():
            observer.event("notice", text=f"left out: {id}: {why}")
        directory = _directory(plan, out)
        summary = _drive(plan, directory, observer)
    try:
        _end(summary, plan, directory, quiet)
    except KeyboardInterrupt:  # one Ctrl-C more than the attempts took to end: it is the table that is not printed
        print(f"{directory}: interrupted; all that was done is kept: agentloop report {directory}")
        raise typer.Exit(3) from None


def _directory(plan: Plan, out: Path | None) -> Path:
    return out or Path("runs") / plan.experiment.name


def _drive(plan: Plan, directory: Path, observer: Shown) -> Summary:
    """Run it; Ctrl-C drains, a second one, SIGTERM or a closed terminal cancels."""
    from agentloop.commands.interrupt import interruptible
    from agentloop.errors import UserError
    from agentloop.runner import Control, Summary
    from agentloop.runner import run as drive

    control = Control()
    work = drive(plan, directory, observer, control)
    try:
        summary = interruptible(work, lambda: _interrupt(control, observer))
        return summary or Summary(attempts=plan.attempts, stopped="cancelled")
    except SystemExit as error:  # the event loop lets it through: a node that exits would look like success
        raise UserError("a node of a strategy called sys.exit: the run was stopped; run again to go on") from error


def _interrupt(control: Control, observer: Shown) -> None:
    if control.draining:
        control.cancel()
        return
    control.drain("interrupted")
    text = "interrupted: the open attempts go on to their end, no other begins; Ctrl-C again stops at once"
    observer.event("notice", text=text)


def _end(summary: Summary, plan: Plan, directory: Path, quiet: bool) -> None:
    from agentloop.progress import counted
    from agentloop.reader import open_run
    from agentloop.store import FILE

    if not (directory / FILE).exists():
        print(f"agentloop: {summary.stopped} before anything was begun", file=sys.stderr)
        raise typer.Exit(3)
    with open_run(directory) as run:
        done = _done(run, plan)
        if not quiet:
            from agentloop.report import report
            from agentloop.tables import console, render

            render(report(run), console(), short=True)
    if quiet or done < plan.attempts or summary.stopped:
        why = f"; stopped: {summary.stopped}" if summary.stopped else ""
        faults = f", {counted(summary.faults, 'faults')}" if summary.faults and not summary.stopped else ""
        again = "; run again to go on" if done < plan.attempts else ""
        print(f"{directory}: {done} of {plan.attempts} attempts done{faults}{why}{again}")
    if done < plan.attempts or summary.stopped:
        raise typer.Exit(3)


def _done(run: Reading, plan: Plan) -> int:
    """How many of the plan's attempts are done; a run may hold others too."""
    problems = {(problem.workload, problem.id) for problem in plan.problems}
    return sum(
        one.strategy in plan.strategies
        and one.model in plan.solvers
        and one.sample < plan.experiment.samples
        and (one.workload, one.problem) in problems
        for one in run.attempts("a.status='done'")
    )
