"""Commands that read a run: report, list, show, replay, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agentloop.progress import Observer
    from agentloop.replay import Replayed

RUN = typer.Argument(..., metavar="DIR", help="A run directory.", show_default=False)
_VISIBLE = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}
"""A model's text must not drive the terminal: control characters are shown escaped."""
JSON = typer.Option(False, "--json", help="As data, with stable keys.")


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(report)
    app.command("list")(list_)
    app.command()(show)
    app.command()(replay)
    app.command()(export)


def report(directory: Path = RUN, as_json: bool = JSON) -> None:
    """The numbers of a run, per model and strategy.

    Correctness on visible and hidden suites, what repair gained and lost, repeats, tokens charged and paid. Works
    while the run is going and on a read-only copy.
    """
    from agentloop.reader import open_run
    from agentloop.report import report as numbers

    with open_run(directory) as run:
        data = numbers(run)
    if as_json:
        _dump(data)
        return
    from agentloop.tables import console, render

    render(data, console())


def list_(
    directory: str = typer.Argument("catalog", metavar="[DIR]", help="A run directory, or `catalog`."),
    strategy: str = typer.Option("", help="Only this strategy."),
    model: str = typer.Option("", help="Only this model."),
    problem: str = typer.Option("", help="Only problems of this id or glob."),
    outcome: str = typer.Option(
        "", help="Only attempts whose submitted program has this outcome: failed, hidden:passed, ..."
    ),
    fault: bool = typer.Option(False, "--fault", help="Only attempts that had a fault."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line."),
) -> None:
    """The attempts of a run; or the catalog.

    Without DIR: the strategies, feedback styles, sandboxes, workloads and models that there are. With it, one line an
    attempt: the hidden suite's outcomes of its first and its submitted program, the visible suite's of each.
    """
    if directory == "catalog":
        from agentloop.commands.catalog import listing

        given = {"--strategy": strategy, "--model": model, "--problem": problem, "--outcome": outcome, "--fault": fault}
        _refuse(given, "chooses attempts: agentloop list DIR")
        listing(as_json)
        return
    from agentloop.listing import Filter, lines, listed
    from agentloop.reader import open_run

    chosen = Filter(strategy, model, problem, outcome, fault)
    with open_run(Path(directory)) as run:
        if as_json:
            for entry in listed(run, chosen):
                print(json.dumps(entry))
        else:
            for line in lines(run, chosen):
                print(line)


def show(
    what: str = typer.Argument(..., metavar="DIR|KIND", help="A run directory; or strategy, template, sandbox."),
    which: str = typer.Argument(
        ..., metavar="ATTEMPT|NAME", help="An attempt's id or PROBLEM[:STRATEGY[:MODEL[:SAMPLE]]]; or a catalog name."
    ),
    full: bool = typer.Option(False, "--full", help="Leave nothing out."),
    as_json: bool = JSON,
    mermaid: bool = typer.Option(False, "--mermaid", help="With `strategy`: its graph as Mermaid text."),
) -> None:
    """The story of one attempt; or a catalog entry.

    show DIR ATTEMPT: prompts, replies, programs and what changed in them, outcomes, feedback, reasons. show strategy
    NAME, show template STYLE/NAME, show sandbox NAME: what it is.
    """
    if what in ("strategy", "template", "sandbox"):
        from agentloop.commands.catalog import show_entry

        _refuse({"--full": full, "--json": as_json}, "goes with an attempt: agentloop show DIR ATTEMPT")
        _refuse({"--mermaid": mermaid and what != "strategy"}, _DRAWN)
        show_entry(what, which, mermaid=mermaid)
        return
    _refuse({"--mermaid": mermaid}, _DRAWN)
    from agentloop.listing import find_attempt
    from agentloop.reader import open_run
    from agentloop.story import story, tell

    with open_run(Path(what)) as run:
        data = story(run, find_attempt(run, which))
    if as_json:
        _dump(data)
        return
    styles: dict[str, dict[str, Any]] = {
        "head": {"bold": True}, "plus": {"fg": "green"}, "minus": {"fg": "red"}, "good": {"fg": "green"},
        "bad": {"fg": "red"},
    }  # fmt: skip
    for style, line in tell(data, full=full):
        typer.secho(line.translate(_VISIBLE), **styles.get(style, {}))


def replay(
    directory: Path = RUN,
    execute: bool = typer.Option(False, "--execute", help="Run the programs again and name the verdicts that flip."),
    frozen: bool = typer.Option(False, "--frozen", help="With the run's own copies of its strategies and templates."),
    out: Annotated[Path | None, typer.Option(help="Drive the journal through a new run directory.")] = None,
    sandbox: Annotated[
        str | None, typer.Option(help="With --execute: where the programs run.  [default: auto]")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="With --execute: programs that run at once.  [default: 2]")
    ] = None,
    quiet: bool = typer.Option(False, "--quiet", help="No progress."),
) -> None:
    """Drive a run again from its journal and compare.

    Every attempt's graph, without model and sandbox, transition by transition. Ends with status 1 at a difference, and
    names the first of each attempt and why.
    """
    import asyncio

    from agentloop.progress import watch

    if not execute:
        _refuse({"--sandbox": sandbox, "--jobs": jobs}, "goes with --execute: without it no program runs")
    if out is not None:
        if execute:
            from agentloop.errors import UserError

            raise UserError("give --out or --execute: a new run takes the journal's executions")
        from agentloop.replay import replay_into

        with watch(quiet) as observer:
            summary = asyncio.run(replay_into(directory, out, observer))
        print(f"{out}: {summary.done} attempts driven from the journal of {directory}")
        print(f"look next: agentloop report {out}")
        return
    if execute:
        with watch(quiet) as observer:
            found = asyncio.run(_execute(directory, frozen, sandbox or "auto", jobs or 2, observer))
    else:
        from agentloop.replay import replay_all

        found = replay_all(directory, frozen=frozen, shown=lambda: watch(quiet))
    _say(found, directory)
    if not found.equal:
        raise typer.Exit(1)


async def _execute(directory: Path, frozen: bool, name: str, jobs: int, observer: Observer) -> Replayed:
    from agentloop.preflight import opened, start
    from agentloop.reader import open_run
    from agentloop.replay import replay as drive

    with open_run(directory) as run:
        languages = run.languages()
    box = opened(name, Path.cwd(), jobs, observer)
    try:
        await start(box, languages, observer)
        return await drive(directory, frozen=frozen, sandbox=box, observer=observer)
    finally:
        await box.close()


def _say(found: Replayed, directory: Path) -> None:
    rate = found.attempts / found.seconds if found.seconds else 0.0
    counts = f"{found.attempts:,} attempts, {found.transitions:,} transitions, {found.verdicts:,} hidden verdicts"
    print(f"{'equal' if found.equal else 'NOT equal'}: {counts} in {found.seconds:.1f} s ({rate:,.0f} attempts/s)")
    if found.unfinished:
        print(f"{found.unfinished} attempts are not finished in the run and were left out")
    for name in found.changed:
        print(f"changed since the run: {name}")
    for title, differences in (("first difference", found.differences), ("verdict flips", found.flips)):
        for one in differences[:10]:
            turn = f" from turn {one.turn} on" if one.turn is not None else ""
            print(f"{title}: attempt {one.attempt} ({one.problem}, {one.strategy}){turn}: {one.where}")
            print(f"  because of: {one.why}")
        if len(differences) > 10:
            print(f"... and {len(differences) - 10} attempts more")
    if found.changed and found.differences:
        print(f"with the run's own copies: agentloop replay {directory} --frozen")


def export(directory: Path = RUN) -> None:
    """A run as JSON lines, everything inlined.

    One line a transition with its prompts, replies and evidence; the hidden grades after each attempt. To stdout.
    """
    from agentloop.export import export as rows
    from agentloop.reader import open_run

    with open_run(directory) as run:
        for row in rows(run):
            print(json.dumps(row))


_DRAWN = "draws a strategy: agentloop show strategy NAME --mermaid"


def _refuse(given: dict[str, object], why: str) -> None:
    """Raise `UserError` for options that say nothing here: left unheard they would seem to hold."""
    from agentloop.errors import UserError

    for option, value in given.items():
        if value:
            raise UserError(f"{option} {why}")


def _dump(data: Any) -> None:
    print(json.dumps(data, indent=2))
