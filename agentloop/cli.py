"""The command line: what is typed becomes calls. Only typer is imported here; commands import what they need.

Exit status: 0 all is well; 1 agentloop failed; 2 the user can mend it; 3 faults remain or the run was stopped early.
Every error is one line on standard error; `AGENTLOOP_DEBUG=1` shows the traceback.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, NoReturn

import typer

from agentloop.commands import catalog, judging, reading, running, upkeep
from agentloop.errors import AgentloopError, innermost

app = typer.Typer(
    name="agentloop",
    help="A laboratory for generate-run-repair loops of code models.",
    # Plain help is a third faster to show than rich's; tracebacks are handled below.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: agentloop doctor, agentloop run EXPERIMENT.toml --dry-run. AGENTLOOP_DEBUG=1 shows tracebacks.",
)
running.add(app)
judging.add(app)
reading.add(app)
catalog.add(app)
upkeep.add(app)


def _version(wanted: bool) -> None:
    if wanted:
        from agentloop import __version__

        print(f"agentloop {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """A laboratory for generate-run-repair loops of code models."""


def main() -> None:
    """Entry point: run a command, and end with one line where it fails."""
    debug = os.environ.get("AGENTLOOP_DEBUG", "") not in ("", "0")
    # How a command ended is known when the interpreter is taken down, which takes a while: Ctrl-C changes it no more.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # models answer with texts that no encoding has; they are shown escaped
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(app(prog_name="agentloop", standalone_mode=False) or 0)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): quiet, and nothing more may be flushed into the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's own: what was typed is wrong
            _misused(error)
        if debug:
            raise
        first = innermost(error)
        if isinstance(first, AgentloopError):
            _end(str(first), first.exit_status)
        if type(first).__module__ == "sqlite3":
            _end(f"the store is damaged or cannot be read: {first}", 1)
        if isinstance(first, OSError) and first.strerror:
            # A full disk, a path too long, a folder that may not be read: the place is all there is to say.
            _end(": ".join(filter(None, (str(first.filename or "")[:200], first.strerror))), 1)
        _end(f"{type(first).__name__}: {first}{_place(first)}; not foreseen, {_kept()}", 1)


def _open_streams() -> None:
    """Give a process that was started without its standard streams some, that lead nowhere.

    Else the first files that are opened take their numbers, and what a child says is written into them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    # Python says None for a stream that is not there, whatever the types say.
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, TextIOWrapper(BufferedWriter(FileIO(number, "w", closefd=False))))


def _misused(error: Any) -> NoReturn:
    message = error.format_message()
    if "\n" in message:  # nothing was typed, and it is the help
        print(message, file=sys.stderr)
        sys.exit(error.exit_code)
    context = getattr(error, "ctx", None)
    _end(f"{message.rstrip('.')}; see {context.command_path if context else 'agentloop'} --help", error.exit_code)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" ({trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno})" if trace else ""


def _end(message: str, status: int) -> NoReturn:
    print(f"agentloop: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


def _kept() -> str:
    """Write the traceback where it can be found, and say where."""
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="agentloop-traceback-", suffix=".txt", delete=False) as file:
            file.write(traceback.format_exc())
    except OSError:
        return "AGENTLOOP_DEBUG=1 shows the traceback"
    return f"traceback in {file.name}"


if __name__ == "__main__":
    main()
