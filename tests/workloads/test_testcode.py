"""Modules of pytest and unittest tests: which tests there are, what is refused, what they find in a real sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from agentloop.errors import UserError
from agentloop.workloads import load
from agentloop.workloads.testcode import module_tests
from tests.workloads.test_references import verdicts

PYTEST = '''"""Tests of a counter."""
from __future__ import annotations

import pytest
from counter import Counter


def test_starts_at_zero():
    assert Counter().value == 0


@pytest.mark.parametrize("step, want", [(1, 2), (5, 10)])
@pytest.mark.parametrize("twice", [True])
def test_steps(step, want, twice):
    counter = Counter()
    counter.add(step)
    counter.add(step)
    assert twice and counter.value == want


def test_refuses():
    with pytest.raises(ValueError, match="negative") as info:
        Counter().add(-1)
    assert "negative" in str(info.value)


class TestMean:
    def setup_method(self):
        self.counter = Counter()

    def test_mean(self):
        self.counter.add(1)
        assert [self.counter.value / 3] == pytest.approx([0.33333333], abs=1e-6)


if __name__ == "__main__":
    pytest.fail("never run")
'''
UNITTEST = """
import unittest


class Base(unittest.TestCase):
    def setUp(self):
        self.counter = Counter()

    def test_add(self):
        for step in (1, 2):
            with self.subTest(step=step):
                self.assertGreater(self.counter.add(step) or self.counter.value, 0)

    def test_refuses(self):
        self.assertRaises(ValueError, self.counter.add, -1)

    def test_never(self):
        self.skipTest("later")


if __name__ == "__main__":
    unittest.main()
"""
RIGHT = """class Counter:
    def __init__(self):
        self.value = 0

    def add(self, step):
        if step < 0:
            raise ValueError("negative step")
        self.value += step
"""
IDS = ["t.test_starts_at_zero", "t.test_steps", "t.test_refuses", "t.TestMean.test_mean"]


def problem(folder: Path, **test: str) -> Path:
    path = folder / "problems.jsonl"
    hidden = [{"id": "t", **test}]
    path.write_text(json.dumps({"id": "c", "statement": "Write Counter.", "entry_point": "Counter", "hidden": hidden}))
    return path


def outcomes(path: Path, *programs: str) -> list[dict[str, tuple[str, str]]]:
    [one] = load("jsonl", path)
    found = verdicts([(one, program, one.hidden.tests) for program in programs])
    assert {test.trust for verdict in found for test in verdict.tests} == {"in_process"}
    return [{test.test: (test.outcome, test.detail) for test in verdict.tests} for verdict in found]


def test_pytest_functions(tmp_path: Path) -> None:
    path = problem(tmp_path, pytest=PYTEST, module="counter")
    wrong = RIGHT.replace("+= step", "= step").replace('ValueError("negative', 'KeyError("negative')
    right, found = outcomes(path, RIGHT, wrong)
    assert right == dict.fromkeys(IDS, ("passed", ""))
    assert found == {
        IDS[0]: ("passed", ""), IDS[1]: ("failed", ""), IDS[2]: ("runtime_error", "KeyError"), IDS[3]: ("passed", ""),
    }  # fmt: skip


def test_unittest_methods(tmp_path: Path) -> None:
    path = problem(tmp_path, unittest=UNITTEST)
    lazy = RIGHT.replace("if step < 0:", "if False:")
    right, found = outcomes(path, RIGHT, lazy)
    assert right == {
        "t.Base.test_add": ("passed", ""), "t.Base.test_refuses": ("passed", ""),
        "t.Base.test_never": ("failed", "SkipTest"),  # nothing run is never a pass
    }  # fmt: skip
    assert found["t.Base.test_refuses"] == ("failed", "AssertionError")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def test_x(tmp_path): pass", "test_x asks for the fixture 'tmp_path'"),
        (
            "from pytest import mark\n@mark.parametrize('a', [1])\nclass TestA:\n    def test_x(self, a): pass",
            "TestA: parametrize of a class is not supported: write it at each of its tests",
        ),
        ("import pytest\n@pytest.fixture\ndef a(): pass\ndef test_x(): pass", "pytest.fixture is not supported"),
        ("from pytest import MonkeyPatch\ndef test_x(): pass", "pytest.MonkeyPatch is not supported"),
        ("import pytest\n@pytest.mark.slow\ndef test_x(): pass", "pytest.mark.slow is not supported"),
        ("import pytest as pt\n@pt.mark.slow\ndef test_x(): pass", "pytest.mark.slow is not supported"),
        ("from pytest import mark as m\n@m.slow\ndef test_x(): pass", "pytest.mark.slow is not supported"),
        ("if True:\n    def test_x(): pass\ndef test_y(): pass", "test_x stands inside of something else"),
        (
            "class TestA:\n    class TestB:\n        def test_x(self): pass\n    def test_y(self): pass",
            "test_x stands inside",
        ),
        ("async def test_x(): pass", "test_x is asynchronous"),
        ("def check(): pass", "holds no test of pytest"),
        ("def test_x(:", "does not parse"),
    ],
)
def test_what_is_not_supported_is_refused_at_once(tmp_path: Path, source: str, said: str) -> None:
    with pytest.raises(UserError, match="hidden") as error:
        load("jsonl", problem(tmp_path, pytest=source))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import unittest\nclass A(unittest.TestCase):\n    @unittest.skip('x')\n    def test_x(self): pass", "test_x"),
        ("import unittest as u\nclass A(u.TestCase):\n    @u.skip('x')\n    def test_x(self): pass", "test_x"),
        ("from unittest import TestCase, skip as no\n@no\nclass A(TestCase):\n    def test_x(self): pass", "A"),
    ],
)
@pytest.mark.parametrize("style", ["pytest", "unittest"])
def test_what_is_always_skipped_is_refused(style: Literal["pytest", "unittest"], source: str, name: str) -> None:
    """No program could pass it, and each would be called wrong."""
    with pytest.raises(ValueError, match=f"^{name} is always skipped"):
        module_tests(style, source, "f")


def test_what_runs_a_module_as_a_script_is_left_alone() -> None:
    source = 'import pytest\ndef test_x(): pass\nif __name__ == "__main__":\n    pytest.main()\n'
    assert [test.id for test in module_tests("pytest", source, "f")] == ["t.test_x"]


INHERITED = """import unittest
class Base:
    def test_a(self): pass
    def test_b(self): pass
class Kind(Base, unittest.TestCase):
    def test_b(self): self.assertEqual(self.made, 1)
    def setUp(self): self.made = 1
class TestMore(Kind):
    def test_c(self): pass
class Loop(Loop): pass
"""


@pytest.mark.parametrize("style", ["pytest", "unittest"])
def test_tests_that_a_class_inherits_are_counted(style: Literal["pytest", "unittest"]) -> None:
    """The list is what pytest and unittest collect; a test that is not run is one that a wrong program passes."""
    found = {test.id for test in module_tests(style, INHERITED, "f")}
    kinds = ("Kind", ("a", "b")), ("TestMore", ("a", "b", "c"))
    assert found == {f"t.{kind}.test_{name}" for kind, names in kinds for name in names}


@pytest.mark.parametrize("head", ["class A(Base)", "class Mixin"])
@pytest.mark.parametrize("style", ["pytest", "unittest"])
def test_a_test_in_a_block_of_a_class_on_another_is_refused(style: Literal["pytest", "unittest"], head: str) -> None:
    source = f"{head}:\n    if True:\n        def test_x(self): pass\n"
    source = f"import unittest\nclass Base(unittest.TestCase):\n    def test_y(self): pass\n{source}"
    source += "class Both(Mixin, unittest.TestCase): pass\n" if "Mixin" in head else ""
    with pytest.raises(ValueError, match=r"^test_x stands inside"):
        module_tests(style, source, "f")


@pytest.mark.parametrize("style", ["pytest", "unittest"])
def test_a_test_that_a_class_sets_to_none_is_none_of_its_own(style: Literal["pytest", "unittest"]) -> None:
    """Else it is called, and a right program fails."""
    source = "import unittest\nclass A(unittest.TestCase):\n    def test_x(self): pass\n"
    source += "class B(A):\n    test_x = None\n    def test_y(self): pass\nclass C(B): pass\n"
    found = [test.id for test in module_tests(style, source, "f")]
    assert found == ["t.A.test_x", "t.B.test_y", "t.C.test_y"]


def test_a_class_on_one_that_is_named_so_is_none_of_pytest() -> None:
    source = "class TestA:\n    def test_x(self): pass\nclass Other(TestA): pass\n"
    assert [test.id for test in module_tests("pytest", source, "f")] == ["t.TestA.test_x"]


def test_of_two_tests_of_one_name_in_a_class_the_last_holds() -> None:
    source = (
        "import unittest\nclass A(unittest.TestCase):\n    def test_x(self): pass\n    def test_x(self): self.fail()\n"
    )
    [test] = module_tests("unittest", source, "f")
    assert test.show.strip() == "def test_x(self): self.fail()"


SWITCHED_OFF = """
import unittest
class A(unittest.TestCase):
    def test_x(self): pass
    def test_y(self): pass
class B(A):
    test_x = None
class TestC:
    __test__ = False
    def test_z(self): pass
class TestD(TestC):
    __test__ = True
class TestE(TestC):
    def test_w(self): assert False
def test_twice(): assert False
def test_twice(): pass
"""


@pytest.mark.parametrize(("style", "others"), [("pytest", ["TestD.test_z", "test_twice"]), ("unittest", [])])
def test_what_a_module_switches_off_or_defines_anew_is_no_test(
    style: Literal["pytest", "unittest"], others: list[str]
) -> None:
    """The list is what pytest and unittest collect; another test would be one that no program passes."""
    found = [test.id for test in module_tests(style, SWITCHED_OFF, "f")]
    assert found == [f"t.{name}" for name in ("A.test_x", "A.test_y", "B.test_y", *others)]


DATACLASS = """from __future__ import annotations
import typing
from dataclasses import dataclass
@dataclass
class Kind:
    number: int = 1
def test_kind(): assert typing.get_type_hints(Kind) == {"number": int} and Kind() == Kind(1)
"""


def test_a_dataclass_finds_the_module_that_it_stands_in(tmp_path: Path) -> None:
    [found] = outcomes(problem(tmp_path, pytest=DATACLASS), RIGHT)
    assert found == {"t.test_kind": ("passed", "")}


HOOKS = """done = []
def setup_module(module):
    module.name = module.__name__
    done.append(name)
def setup_function(function): done.append(function.__name__)
def teardown_function(): done.pop()
def test_function(): assert done == ['tests', 'test_function'], done
class TestKind:
    @classmethod
    def setup_class(cls): cls.made = [cls.__name__]
    def setup_method(self, method): self.made.append(method.__name__)
    def teardown_method(self): self.made.clear()
    def test_method(self): assert self.made == ['TestKind', 'test_method'] and done == ['tests'], (self.made, done)
class TestBare:
    def setup_class(self): self.made = 1
    def setup_method(self): self.made += 1
    def test_bare(self): assert self.made == 2
"""


def test_hooks_that_set_up_and_tear_down(tmp_path: Path) -> None:
    [found] = outcomes(problem(tmp_path, pytest=HOOKS), RIGHT)
    names = ("test_function", "TestKind.test_method", "TestBare.test_bare")
    assert found == {f"t.{name}": ("passed", "") for name in names}


SET_UP_ONCE = """import unittest
modules, classes, methods = [], [], []
def setUpModule(): modules.append(1)
class TestKind(unittest.TestCase):
    @classmethod
    def setUpClass(cls): classes.append(1)
    def setUp(self): methods.append(1)
    def test_once(self): self.assertEqual((modules, classes, methods), ([1], [1], [1]))
"""


@pytest.mark.parametrize("style", ["unittest", "pytest"])
def test_what_unittest_sets_up_is_set_up_once(tmp_path: Path, style: str) -> None:
    # as `python -m unittest` and pytest do it
    [found] = outcomes(problem(tmp_path, **{style: SET_UP_ONCE}), RIGHT)
    assert found == {"t.TestKind.test_once": ("passed", "")}


def test_what_skips_by_a_condition_is_run() -> None:
    source = (
        "import unittest\nclass A(unittest.TestCase):\n    @unittest.skipIf(False, 'x')\n    def test_x(self): pass"
    )
    assert [test.id for test in module_tests("unittest", source, "f")] == ["t.A.test_x"]


def test_a_default_is_no_fixture() -> None:
    for given in ("a=1", "a=1, *, b=2", "*, b=2"):
        assert [test.id for test in module_tests("pytest", f"def test_x({given}): pass", "f")] == ["t.test_x"]


@pytest.mark.parametrize("before", ["", "# tests\n", "\n", "import math\n", '"""Tests\nof it."""\n', "import random\n",
                                    "from __future__ import annotations\nimport math\n"])  # fmt: skip
def test_a_traceback_has_the_line_numbers_of_the_module(before: str) -> None:
    source = f"{before}class Kind:\n    pass\n\n\ndef test_x():\n    1 / 0\n"
    [test] = module_tests("pytest", source, "f")
    wanted = source.splitlines().index("    1 / 0") + 1
    lines = test.input["code"].splitlines()
    # A module that begins with a block has no room on its first line.
    assert lines.index("    1 / 0") + 1 == wanted + (before == "")
    compile(test.input["code"], "test.py", "exec")
