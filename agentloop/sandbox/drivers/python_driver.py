"""Runs inside the sandbox, in the program's own process, once per test: `python python.pyc MODE FOLDER [FUNCTION]`.

  build   compile the drivers in FOLDER/source into FOLDER, once per lane
  stdio   run main.py of FOLDER as `__main__`
  call    read {"function", "args", "kwargs"} from stdin, load main.py as module `solution`, call, write one line
          (or {"function", "calls": JSON text of a list of args}: one line a call, up to the first that raises)
  script  read {"code", "function"} from stdin, load main.py, run the code in the same process (trust `in_process`)
  serve   load main.py, then answer calls ({"args", "kwargs"} a line) of a checker with one line each

A program that does not compile gives the line {"compile": {"type", "message", "traceback", "where": "load"}} in every
mode; in `serve` the first line is that, an exception, or {"ready": true}. Any other line is {"value": plain} |
{"exception": {"type", "message", "traceback", "where": "load" | "call"}} | {"unplain": why}; in `serve` with "args",
the arguments after the call, where one could have been changed in place; of a script {"ok": true} | {"assertion"} |
{"exception": {...}, "from": "program" | "script"}. In stdio the channel gets a line only for an exception that nobody
caught. Plain data: see `agentloop.plain`.
Start-up is paid for every test: hence `posix` and `_json`, not `os` and `json` (15 ms), and imports where needed.
"""

# ruff: noqa: PTH123
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
import atexit
import builtins
import gc
import posix
import sys

MAX_DEPTH, MAX_ITEMS = 500, 10_000
KEYS, ITEMS, VALUES = (type(view) for view in (vars().keys(), vars().items(), vars().values()))


class Unplain(Exception):
    """A value that has no form as plain data; the text says why."""


class _Scanner:
    strict, object_hook, object_pairs_hook = False, None, None
    parse_float, parse_int = float, int
    parse_constant = float


def parse(text):
    """JSON without the json package."""
    import _json

    return _json.make_scanner(_Scanner)(text, 0)[0]


def decode(value):
    """Plain data (parsed JSON) to Python values."""
    if type(value) is list:
        return [decode(item) for item in value]
    if type(value) is not dict:
        return value
    ((tag, inner),) = value.items()
    if tag == "float":
        return float(inner)
    if tag == "int":
        return int(inner, 16)
    if tag == "tuple":
        return tuple(decode(inner))
    if tag == "set":
        return set(frozenset(decode(inner)))  # as a set display is made: it iterates in the same order
    if tag == "frozenset":
        return frozenset(decode(inner))
    if tag == "dict":
        return {decode(key): decode(item) for key, item in inner}
    if tag == "complex":
        return complex(*decode(inner))
    if tag == "iterator":
        return iter(decode(inner))
    from binascii import a2b_base64

    data = a2b_base64(inner)
    return data.decode("utf-8", "surrogatepass") if tag == "str" else data


def encode(value):
    """A Python value as the JSON text of plain data. Only the value's base type is asked, never its own methods.

    So an object that calls itself equal to everything leaves as what it is. Raises `Unplain`.
    """
    parts = []
    room = cap = int(posix.environ.get(b"AGENTLOOP_CAP", b"262144")) - 64

    def put(text):
        nonlocal room
        room -= len(text)
        if room < 0:
            raise Unplain(f"more than {cap} bytes")
        parts.append(text)

    def sequence(items, depth, opening="[", closing="]"):
        put(opening)
        for number, item in enumerate(items):
            if number:
                put(",")
            walk(item, depth + 1)
        put(closing)

    def pair(pair_, depth):
        sequence(pair_, depth)

    def walk(item, depth):
        kind = type(item)
        if depth > MAX_DEPTH:
            raise Unplain(f"nested deeper than {MAX_DEPTH}")
        if item is None:
            put("null")
        elif kind is bool:
            put("true" if item else "false")
        elif issubclass(kind, int):
            number = int.__int__(item)
            put(repr(number) if -(2**53) <= number <= 2**53 else f'{{"int":"{hex(number)}"}}')
        elif issubclass(kind, float):
            number = float.__float__(item)
            put(repr(number) if number - number == 0 else f'{{"float":"{number!r}"}}')
        elif issubclass(kind, str):
            put(string(str.__str__(item)))
        elif issubclass(kind, list):
            sequence(list.__iter__(item), depth)
        elif issubclass(kind, tuple):
            sequence(tuple.__iter__(item), depth, '{"tuple":[', "]}")
        elif issubclass(kind, dict):
            put('{"dict":[')
            for number, entry in enumerate(dict.items(item)):
                put("," if number else "")
                sequence(entry, depth)
            put("]}")
        elif issubclass(kind, set):
            sequence(set.__iter__(item), depth, '{"set":[', "]}")
        elif issubclass(kind, frozenset):
            sequence(frozenset.__iter__(item), depth, '{"frozenset":[', "]}")
        elif kind in (KEYS, ITEMS):
            sequence(item, depth, '{"set":[', "]}")
        elif issubclass(kind, bytes | bytearray):
            put(f'{{"bytes":"{base64(memoryview(item))}"}}')
        elif issubclass(kind, complex):
            sequence((item.real, item.imag), depth, '{"complex":[', "]}")
        elif kind in (range, VALUES) or hasattr(kind, "__next__"):
            sequence(first(item), depth, '{"iterator":[', "]}")
        else:
            raise Unplain(kind.__name__)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10_000))
    try:
        walk(value, 0)
    finally:
        sys.setrecursionlimit(limit)
    return "".join(parts)


def first(items):
    for number, item in enumerate(items):
        if number == MAX_ITEMS:
            return
        yield item


def string(text):
    try:
        text.encode()
    except UnicodeEncodeError:
        return f'{{"str":"{base64(text.encode("utf-8", "surrogatepass"))}"}}'
    return quoted(text)


def quoted(text):
    from _json import encode_basestring_ascii

    return encode_basestring_ascii(text)


def base64(data):
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode()


class Quitter:
    """`exit` and `quit`, which Python's site module gives to programs; it is not loaded here."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"Use {self.name}() or Ctrl-D (i.e. EOF) to exit"

    def __call__(self, code=None):
        raise SystemExit(code)


class Source:
    """A loader that gives tracebacks the program's lines, under a name that is the same in every sandbox."""

    def __init__(self, path):
        self.path = path

    def get_source(self, name):
        from tokenize import open as decoded

        with decoded(self.path) as file:
            return file.read()


def load(code, path, name):
    """Run the compiled main.py as module `name`; the module."""
    module = type(sys)(name)
    module.__file__, module.__loader__, module.__builtins__ = path, Source(path), builtins
    sys.modules[name], sys.argv = module, ["main.py"]
    builtins.exit, builtins.quit = Quitter("exit"), Quitter("quit")
    exec(code, module.__dict__)
    return module


def told(error, where):
    """An exception as plain data, without the driver's own frames."""
    import traceback

    trace = error.__traceback__
    while trace and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))
    try:
        message = str(error)[:4000]
    except BaseException as other:
        message = f"<no text: {type(other).__name__}>"
    try:
        text = "".join(traceback.format_exception(type(error), error, trace))[-16_000:]
    except BaseException:
        text = f"{type(error).__name__}: {message}\n"
    fields = {"type": type(error).__name__, "message": message, "traceback": text, "where": where}
    return "{" + ",".join(f'"{key}":{quoted(item)}' for key, item in fields.items()) + "}", text


def answer(function, request, changes=False):
    """Call the function; the line that tells what came of it."""
    args = [decode(item) for item in request["args"]]
    kwargs = {key: decode(item) for key, item in request["kwargs"].items()}
    try:
        result = function(*args, **kwargs)
        try:
            line = f'{{"value":{encode(result)}'
        except Unplain as error:
            line = f'{{"unplain":{quoted(str(error))}'
    except BaseException as error:
        line = f'{{"exception":{told(error, "call")[0]}'
    if changes and any(type(item) in (list, dict, set) for item in args):
        try:
            line += f',"args":{encode(args)}'
        except Exception:
            return line + "}"
    return line + "}"


def judged(code, module):
    """Run a test script beside the program; the line that tells what came of it."""
    try:
        scope = {**module.__dict__, "__name__": "__main__", "__loader__": None}  # main.py's lines are not the test's
        exec(compile(code, "test.py", "exec", dont_inherit=True), scope)
        return '{"ok":true}'
    except BaseException as error:
        frames = error.__traceback__
        shown = 0
        while frames:
            place = frames.tb_frame.f_code.co_filename
            shown = frames.tb_lineno if place == "test.py" else shown
            frames = frames.tb_next
        if isinstance(error, AssertionError) and place == "test.py":
            lines = [code.splitlines()[shown - 1].strip(), str(error)]
            return f'{{"assertion":{quoted(chr(10).join(filter(None, lines))[:4000])}}}'
        whose = "program" if place == "main.py" else "script"
        return f'{{"exception":{told(error, "call")[0]},"from":"{whose}"}}'


def build(folder):
    from _frozen_importlib_external import _code_to_timestamp_pyc

    for name in ("python", "check", "fork"):
        path = f"{folder}/source/{name}.py"
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec")
        with open(f"{folder}/{name}.pyc", "wb") as file:
            file.write(_code_to_timestamp_pyc(code))


def descriptor(variable):
    """The descriptor of a pipe, which this variable tells; the program's own children inherit neither."""
    fd = int(posix.environ.pop(variable))
    posix.unsetenv(variable)
    posix.set_inheritable(fd, False)
    return fd


def send(channel, line):
    data = line.encode() + b"\n"
    while data:
        data = data[posix.write(channel, data) :]


def leave(code):
    """End the process as `sys.exit(code)` would, but without taking apart, one by one, the modules of the start-up.

    That costs a third of a short program's time. In the interpreter's order: threads are waited for, exit functions
    are called, the streams are flushed, what the program made is deleted (files it did not close are written, and one
    of them may have the descriptor of a stream), the streams are flushed again.
    """
    status = code & 0xFF if isinstance(code, int) else int(code is not None)
    try:
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
    except BaseException:
        pass  # as there: what fails at the end is not the program's status
    atexit._run_exitfuncs()
    good = flushed()
    sys.modules.pop("__main__", None)
    gc.collect()
    if not (flushed() and good):
        status = 120  # its status when what was written cannot be
    try:
        if "ctypes" in sys.modules:  # what C functions wrote is in a buffer of C's own
            sys.modules["ctypes"].CDLL(None).fflush(None)
    finally:
        posix._exit(status)


def flushed():
    """Whether all that was written to the standard streams could be passed on."""
    good = True
    for file in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            if file and not getattr(file, "closed", False):
                file.flush()
        except BaseException:
            good = False
    return good


def main(mode, folder, name=""):
    if b"AGENTLOOP_GATE" in posix.environ:
        gate = descriptor(b"AGENTLOOP_GATE")
        if not posix.read(gate, 1):
            posix._exit(127)
        posix.close(gate)
    if mode == "build":
        return build(folder)
    channel, path, stage, status = descriptor(b"AGENTLOOP_CHANNEL"), folder + "/main.py", "compile", None
    requests = descriptor(b"AGENTLOOP_CALLS") if mode == "serve" else None
    if mode in ("call", "script"):
        request = parse(sys.stdin.read())
        name = request["function"]
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), "main.py", "exec", dont_inherit=True)
        stage = "exception"
        module = load(code, path, "__main__" if mode == "stdio" else "solution")
        if mode != "stdio" and name not in module.__dict__:
            raise NameError(f"name {name!r} is not defined")
    except BaseException as error:
        if mode == "stdio" and isinstance(error, SystemExit):
            status = error.code
        else:
            line, text = told(error, "load")
            send(channel, f'{{"{stage}":{line}}}')
            sys.stderr.write(text)
            status = 1
    if mode == "stdio" or status:
        module = code = None
        leave(status)
    if mode == "call":
        calls = [{"args": args, "kwargs": {}} for args in parse(request["calls"])] if "calls" in request else [request]
        for each in calls:
            line = answer(module.__dict__[name], each)
            send(channel, line)
            if line.startswith('{"exception"'):
                break
    elif mode == "script":
        send(channel, judged(request["code"], module))
    else:
        send(channel, '{"ready":true}')
        for line in open(requests, encoding="utf-8"):  # noqa: SIM115
            send(channel, answer(module.__dict__[name], parse(line), changes=True))
    for file in (sys.stdout, sys.stderr):
        try:
            file.flush()
        except Exception:
            continue
    posix._exit(0)  # the result is out: threads and atexit handlers of the program change nothing


if __name__ == "__main__":
    main(*sys.argv[1:])
