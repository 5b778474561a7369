"""Commands about this machine: what it has, what a crash left, what to download beforehand."""

from __future__ import annotations

import typer


def add(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(doctor)
    app.command()(clean)
    app.command()(fetch)


def doctor() -> None:
    """What this machine has, and what it lacks.

    Each sandbox, compiler, model and data set, and the one thing to do where it is missing. Ends with status 1 if no
    sandbox works.
    """
    from agentloop.doctor import checks

    working = False
    for check in checks():
        mark = typer.style("ok     ", fg="green") if check.ok else typer.style("missing", fg="yellow")
        typer.echo(f"{mark}  {check.kind:<8} {check.name}: {check.text}")
        if check.todo and not check.ok:
            print(f"{'':<17} -> {check.todo}")
        working |= check.ok and check.kind == "sandbox" and check.name != "local-reduced"
    if not working:
        print("no sandbox works here with full isolation; --sandbox local-reduced is the level below")
        raise typer.Exit(1)


def clean() -> None:
    """Remove what a crash left behind.

    Containers, work directories, copies. Runs and downloads stay.
    """
    from agentloop.doctor import clean as sweep

    said = list(sweep())
    for line in said:
        print(line)
    if not any(line.startswith("removed") for line in said):
        print("nothing to remove")


def fetch(what: str = typer.Argument(..., metavar="humaneval|local/NAME", help="What to download.")) -> None:
    """Download data or a local model's weights.

    Into the cache; goes on where it was stopped.
    """
    from agentloop.errors import unknown_name
    from agentloop.progress import watch

    with watch(quiet=False) as observer:

        def progress(name: str, done: int, total: int | None) -> None:
            observer.event("download", what=name, done=done, total=total)

        if what == "humaneval":
            from agentloop.fetch import cache_dir
            from agentloop.workloads.humaneval import fetch_humaneval

            path = fetch_humaneval(cache_dir(), progress)
        elif what.startswith("local/"):
            from agentloop.models.weights import ensure_weights

            path = ensure_weights(what.removeprefix("local/"), progress)
        else:
            from agentloop.doctor import local_models

            raise unknown_name("download", what, ["humaneval", *local_models()])
    print(f"{what} is in {path}")
