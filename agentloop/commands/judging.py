"""`agentloop judge`: verdicts on stored programs. `agentloop validate`: what a workload's references show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from agentloop.judging import Judged

WORKLOAD = Annotated[str, typer.Option(metavar="NAME", help="The problems: humaneval, mbpp, jsonl, FILE.py, ...")]
DATA = Annotated[Path | None, typer.Option(metavar="PATH", help="The data file, where the set is not in a package.")]
SANDBOX = Annotated[str, typer.Option(metavar="NAME", help="auto, docker, local, local-reduced, e2b, a profile.")]
JOBS = Annotated[int, typer.Option(metavar="N", min=1, help="Programs that run at once.")]
QUIET = Annotated[bool, typer.Option("--quiet", help="Print the last line only.")]


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(judge)
    app.command()(validate)


def judge(
    workload: WORKLOAD,
    programs: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON lines: problem_id, and code or response; - is standard input.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="The verdicts; a file that is there goes on; - prints them."),
    ],
    data: DATA = None,
    suite: Annotated[str, typer.Option(metavar="NAME", help="visible, hidden or all.")] = "hidden",
    validated: Annotated[Path | None, typer.Option(metavar="FILE", help="What `agentloop validate` wrote.")] = None,
    sandbox: SANDBOX = "auto",
    jobs: JOBS = 2,
    first_failure: Annotated[
        bool, typer.Option("--first-failure", help="Run no test after the first that a program does not pass.")
    ] = False,
    unordered: Annotated[
        bool, typer.Option("--unordered", help="Write each verdict as soon as it is there, in no order.")
    ] = False,
    quiet: QUIET = False,
) -> None:
    """Judge stored programs without a model.

    Each line of the output is the line of the input with its verdict, in the same order without --unordered. Ctrl-C
    stops; run again to go on. Status 3: a line has a fault in place of a verdict, or it was stopped early.
    """
    from agentloop.progress import watch

    with watch(quiet) as observer:
        from agentloop.commands.interrupt import interruptible
        from agentloop.judging import judge_programs, suite_name
        from agentloop.preflight import opened
        from agentloop.validation import load_sound

        name = suite_name(suite)
        observer.event("phase", text=f"checking {programs}")
        sound = load_sound(workload, data, validated)
        work = judge_programs(
            sound.problems,
            programs,
            out,
            suite=name,
            sandbox=opened(sandbox, Path.cwd(), jobs, observer, validated_in=sound.backend),
            jobs=jobs,
            first_failure=first_failure,
            unordered=unordered,
            left_out=sound.left_out(name),
            observer=observer,
        )
        judged = interruptible(work)
    # Verdicts that are printed stay alone on standard output.
    where, told = ("verdicts", sys.stderr) if str(out) == "-" else (str(out), sys.stdout)
    if judged is None:
        print(f"{where}: interrupted; run again to go on", file=told)
        raise typer.Exit(3)
    print(f"{where}: {_summary(judged)}", file=told)
    if judged.faults or judged.stopped:
        raise typer.Exit(3)


def validate(
    workload: WORKLOAD,
    data: DATA = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Where it is written.  [default: in the user's cache]"),
    ] = None,
    sandbox: SANDBOX = "auto",
    jobs: JOBS = 2,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print what was found, without progress.")] = False,
) -> None:
    """Find by its references which tests of a workload are sound.

    Problems whose reference fails a hidden test are quarantined, visible examples that it fails are dropped, limits are
    at least three times the slowest reference. It is all written to a file, which `--validated FILE` of run and judge
    takes. Status 2: not one problem is sound. Status 3: a fault, nothing is known of a problem. The file is written
    all the same.
    """
    from agentloop.progress import watch

    with watch(quiet) as observer:
        from agentloop.commands.interrupt import interruptible
        from agentloop.errors import UserError
        from agentloop.fetch import cache_dir
        from agentloop.preflight import opened
        from agentloop.validation import check_target, write
        from agentloop.validation import validate as references
        from agentloop.workloads import load

        if str(out) == "-":
            raise UserError("-o -: what was found is not printed as JSON, name a file")
        if out is not None:
            check_target(out)
        observer.event("phase", text=f"reading {workload}")
        problems = load(workload, data)
        where = opened(sandbox, Path.cwd(), jobs, observer)
        found = interruptible(references(problems, sandbox=where, jobs=jobs, observer=observer))
    if found is None:
        print("interrupted: nothing is written")
        raise typer.Exit(3)
    path = out or cache_dir() / "validated" / f"{Path(workload).stem}-{found.workload[:12]}.json"
    write(found, path)
    for id, why in found.quarantined.items():
        print(f"quarantined  {id}: {why}")
    for id, tests in found.dropped.items():
        print(f"dropped      {id}: visible {', '.join(tests)}: its reference does not pass")
    for id, limits in found.limits.items():
        print(f"limit        {id}: {limits['cpu']:g} CPU seconds")
    for id, why in found.faults.items():
        print(f"fault        {id}: {why}")
    faults = f", {len(found.faults)} ended in a fault" if found.faults else ""
    without = f"{len(found.unproven)} {'has' if len(found.unproven) == 1 else 'have'} no reference{faults}"
    print(f"{path}: {found.sound} of {found.problems} problems are sound, {without}")
    if found.faults:
        raise typer.Exit(3)
    if not found.sound:
        raise UserError("no problem is sound, references fail in all of them: mend the tests or the references")


def _summary(judged: Judged) -> str:
    from agentloop.progress import counted

    total = judged.outcomes.total()
    others = [f"{name} {count}" for name, count in judged.outcomes.most_common() if name != "passed"]
    parts = [f"{judged.suite} suite: passed {judged.outcomes['passed']} of {total}", *others]
    if judged.in_process:
        parts.append(f"{judged.in_process} with tests in the program's own process")
    if judged.left_out:
        parts.append(f"{judged.left_out} left out")
    if judged.faults:
        parts.append(f"{counted(judged.faults, 'faults')}; run again to judge them")
    if judged.stopped:
        parts.append(f"stopped: {judged.stopped}; run again to go on")
    return ", ".join(parts)
