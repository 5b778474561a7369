"""Runs a test script in the checker's own process: {"code", "function"} on stdin, the function under test by proxy.

The program lives in another process of another uid; only plain data passes between. Writes one line to its channel:
{"ok": true} | {"assertion": text} | {"exception": {"type", "message", "traceback"}, "from": "program" | "script"}.
"""

# ruff: noqa: PTH120, PTH123
# Runs as it stands inside the sandbox, where importing typing would cost time.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
import builtins
import json
import os
import sys
import traceback

sys.path.append(os.path.dirname(__file__))
from python import Unplain, decode, encode  # type: ignore[import-not-found]


class ProgramGone(BaseException):
    """The program's process ended, or does not speak the driver's language; not for a script's `except Exception`."""


GONE: list["ProgramGone"] = []
"""The first `ProgramGone`: it decides, whatever the script makes of it (`except:` takes that one too)."""


def gone(message):
    GONE.append(ProgramGone(message))
    return GONE[0]


class NotCompiled(BaseException):
    """The program does not compile; its argument is the driver's word on that."""


class Proxy:
    """Stands for the function under test: a call goes to the program's process and comes back as plain data."""

    def __init__(self, name):
        self.__name__ = name
        self._calls = open(int(os.environ["AGENTLOOP_CALLS"]), "w", encoding="utf-8")  # noqa: SIM115
        self._answers = open(int(os.environ["AGENTLOOP_ANSWERS"]), "rb")  # noqa: SIM115

        self._reply()

    def __call__(self, *args, **kwargs):
        try:
            request = ",".join(f"{json.dumps(key)}:{encode(item)}" for key, item in kwargs.items())
            line = f'{{"args":{encode(list(args))},"kwargs":{{{request}}}}}\n'
        except Unplain as error:
            raise TypeError(f"an argument cannot leave the test script: {error}") from None
        try:
            self._calls.write(line)
            self._calls.flush()
        except OSError:
            raise gone("the program's process ended") from None
        value, changed = self._reply()
        for old, new in zip(args, changed or args, strict=True):
            if old is not new:
                change(old, new)
        return value

    def _reply(self):
        """The value of the program's next line, and its arguments after the call; or raises what it tells."""
        answer = self._answers.readline(3 * int(os.environ["AGENTLOOP_CAP"]))
        if not answer.endswith(b"\n"):
            raise gone("the program's process ended before it answered")
        try:
            reply = json.loads(answer)
            value, changed = decode(reply.get("value")), decode(reply.get("args"))
            fields = reply.get("exception") or {"type": "TypeError", "message": "", "traceback": ""}
            kind = vars(builtins).get(fields["type"])
            if not (isinstance(kind, type) and issubclass(kind, BaseException)) or issubclass(kind, BaseExceptionGroup):
                kind = type(fields["type"], (Exception,), {})
            error = kind.__new__(kind, fields["message"])
        except (ValueError, TypeError, KeyError, RecursionError, AttributeError, OverflowError):
            raise gone("the program's process wrote something else than an answer") from None
        if "compile" in reply:
            raise NotCompiled(reply["compile"])
        if "exception" in reply:
            raise from_program(error, fields)
        if "unplain" in reply:
            raise from_program(TypeError(f"the result is not plain data: {reply['unplain']}"))
        return value, changed


def from_program(error, fields=None):
    error.agentloop_program = fields or {"type": type(error).__name__, "message": str(error), "traceback": ""}
    return error


def change(old, new):
    """What the function changed in place in its argument, changed here too."""
    if isinstance(old, list) and isinstance(new, list):
        old[:] = new
    elif isinstance(old, dict | set) and type(old) is type(new):
        old.clear()
        old.update(new)


def run(request):
    lines = request["code"].splitlines()
    try:
        try:
            scope = {"__name__": "__main__", request["function"]: Proxy(request["function"])}
            exec(compile(request["code"], "test.py", "exec", dont_inherit=True), scope)
        finally:
            if GONE:
                raise GONE[0]
    except NotCompiled as error:
        return {"compile": error.args[0]}
    except ProgramGone as error:
        return {"exception": {"type": "ProgramGone", "message": str(error), "traceback": ""}, "from": "program"}
    except BaseException as error:
        fields = getattr(error, "agentloop_program", None)
        if fields:
            return {"exception": fields, "from": "program"}
        at = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "test.py"]
        shown = lines[at[-1] - 1].strip() if at and 0 < at[-1] <= len(lines) else ""
        if isinstance(error, AssertionError):
            return {"assertion": "\n".join(text for text in (shown, str(error)) if text)[:4000]}
        trace = "".join(traceback.format_exception(error))[-16_000:]
        return {
            "exception": {"type": type(error).__name__, "message": str(error)[:4000], "traceback": trace},
            "from": "script",
        }
    return {"ok": True}


if __name__ == "__main__":
    with open(int(os.environ["AGENTLOOP_CHANNEL"]), "w", encoding="utf-8") as channel:
        channel.write(json.dumps(run(json.load(sys.stdin))) + "\n")
