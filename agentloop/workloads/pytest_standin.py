"""Runs one test function of a pytest or unittest module; read as text and run inside the sandbox, never imported here.

`run(scope, owner, name)` raises what the test raised. `pytest` is a module with the names that tests use most.
"""

# mypy: ignore-errors
import math
import re
import types
import unittest


class Raises:
    """`with raises(Kind, match=...) as info`: `info.value` is the exception."""

    def __init__(self, kind, match=None):
        self.kind, self.match, self.value, self.type = kind, match, None, None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            raise AssertionError(f"DID NOT RAISE {self.kind}")
        if not issubclass(kind, self.kind):
            return False
        self.value, self.type = error, kind
        if self.match is not None and not re.search(self.match, str(error)):
            raise AssertionError(f"pattern {self.match!r} not found in {str(error)!r}")
        return True


def raises(kind, *args, match=None, **kwargs):
    """As pytest's: a context manager, or a call of `args[0]` with the other arguments."""
    if not args:
        return Raises(kind, match)
    info = Raises(kind)
    with info:
        args[0](*args[1:], **kwargs)
    return info


class Approx:
    """Equal to numbers within max(rel * expected, abs), at any depth of lists, tuples and dicts."""

    __hash__ = None
    __array_ufunc__ = None

    def __init__(self, expected, rel=None, abs=None):
        self.expected, self.rel, self.abs = expected, rel, abs

    def __eq__(self, got):
        expected = self.expected
        if isinstance(expected, dict):
            return (
                isinstance(got, dict)
                and got.keys() == expected.keys()
                and all(self.like(expected[key]) == got[key] for key in expected)
            )
        if isinstance(expected, list | tuple):
            try:
                return len(got) == len(expected) and all(self.like(a) == b for a, b in zip(expected, got))  # noqa: B905
            except TypeError:
                return False
        if got == expected:
            return True
        numbers = isinstance(expected, int | float | complex) and isinstance(got, int | float | complex)
        if not numbers or isinstance(expected, bool) or isinstance(got, bool):
            return False
        if isinstance(expected, float) and not math.isfinite(expected):
            return False
        given = self.abs if self.abs is not None else 1e-12
        rel = self.rel if self.rel is not None else (0.0 if self.abs is not None else 1e-6)
        return abs(got - expected) <= max(rel * abs(expected), given)

    def like(self, expected):
        return Approx(expected, self.rel, self.abs)

    def __repr__(self):
        return f"approx({self.expected!r})"


def fail(reason=""):
    raise AssertionError(reason)


def skip(reason=""):
    raise unittest.SkipTest(reason)


def param(*values, id=None):
    return Row(values)


class Row(tuple):
    """The values of one `param`."""


def parametrize(names, rows, ids=None):
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def mark(function):
        cases = []
        for row in rows:
            several = len(names) > 1 or isinstance(row, Row)
            cases.append(dict(zip(names, row if several else (row,), strict=True)))
        before = getattr(function, "agentloop_cases", [{}])
        function.agentloop_cases = [{**one, **other} for one in before for other in cases]
        return function

    return mark


pytest = types.ModuleType("pytest")
pytest.raises, pytest.approx, pytest.fail, pytest.skip, pytest.param = raises, Approx, fail, skip, param
pytest.mark = types.SimpleNamespace(parametrize=parametrize)


class Result(unittest.TestResult):
    """Keeps the first exception of a test."""

    caught = None

    def addError(self, test, err):
        self.caught = self.caught or err[1]

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addError(test, err)

    def addUnexpectedSuccess(self, test):
        self.caught = self.caught or AssertionError("it was expected to fail")


class Module:
    """The test module as its `setup_module` sees it: what is set on it is a name of the module."""

    def __init__(self, scope):
        self.__dict__ = scope


def hook(owner, name, given):
    """Call what sets a test up or tears it down, if it is there; it may take what it is for, or nothing."""
    function = owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)
    if function is not None:
        code = getattr(function, "__code__", None)
        takes = code is None or code.co_argcount > hasattr(function, "__self__")
        function(*[given][:takes])


def run(scope, owner, name):
    if "setUpModule" in scope:
        scope.pop("setUpModule")()  # else unittest finds it in the module and calls it once more
    else:
        hook(scope, "setup_module", Module(scope))
    if owner and issubclass(scope[owner], unittest.TestCase):
        result = Result()
        unittest.TestSuite([scope[owner](name)]).run(result)
        if result.caught is not None:
            raise result.caught
        if result.skipped or not result.testsRun:
            raise unittest.SkipTest(result.skipped[0][1] if result.skipped else "not run")
        return
    function = getattr(scope[owner], name) if owner else scope[name]
    rows = getattr(function, "agentloop_cases", [{}])
    if not rows:
        raise unittest.SkipTest("no parameters")  # nothing run is never a pass
    if owner:
        hook(scope[owner], "setup_class", scope[owner])
    for values in rows:
        one = scope[owner]() if owner else scope
        kind = "method" if owner else "function"
        test = getattr(one, name) if owner else function
        hook(one, f"setup_{kind}", test)
        try:
            test(**values)
        finally:
            hook(one, f"teardown_{kind}", test)
