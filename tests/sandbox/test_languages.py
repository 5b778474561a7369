"""Programs in each language come out the same on every backend; and the small parts that make it so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentloop import preflight
from agentloop.errors import SandboxError, UserError
from agentloop.sandbox.compiled import BUILD, COMPILED, java_classes
from agentloop.sandbox.languages import execution, needs, wire_job
from agentloop.sandbox.local import LocalSandbox, available
from agentloop.testing import language_cases, why_not
from agentloop.types import LANGUAGES, Job, Limits, Test
from tests.sandbox import run_languages
from tests.sandbox.conftest import Run

NAMESPACES = available()["namespaces"]
namespaces = pytest.mark.skipif(bool(NAMESPACES), reason=f"namespaces: {NAMESPACES}")
LEVELS = [("local", True), ("local", False), ("local-reduced", True), ("local-reduced", False)]


def report(found: dict[str, str]) -> None:
    if "skip" in found:
        pytest.skip(found["skip"])
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
    assert found


@pytest.mark.parametrize("language", COMPILED)
def test_all_cases_on_docker(language: str, need: Callable[[str], None]) -> None:
    need("docker")
    found = asyncio.run(run_languages.main("docker", language, slice(None)))
    assert "skip" not in found, found
    report(found)


@pytest.mark.parametrize("language", COMPILED)
@pytest.mark.parametrize(("level", "root"), LEVELS, ids=lambda value: {True: "root", False: "user"}.get(value, value))
def test_cases_on_local(level: str, root: bool, language: str, run_as: Run) -> None:
    short = [] if (level, root) == ("local", True) else ["--probe"]
    done = run_as(root, "run_languages.py", level, language, *short)
    assert done.returncode == 0, done.stderr
    report(json.loads(done.stdout))


def test_every_language_that_problems_may_name_can_be_run() -> None:
    assert ("python", *COMPILED) == LANGUAGES
    assert [str(wire_job(preflight.probe(language)[0])["limits"]["cpu"]) for language in LANGUAGES] == ["1.5"] * 5


def test_a_language_that_is_none_is_told_with_the_nearest() -> None:
    for ask in (language_cases, preflight.probe, lambda name: asyncio.run(why_not(LocalSandbox(lanes=1), name))):
        with pytest.raises(UserError, match=r"unknown language 'Rust': did you mean 'rust'\?"):
            ask("Rust")


def test_names_of_cases_are_unique() -> None:
    names = [case[0] for language in ("python", *COMPILED) for case in language_cases(language)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("program", "file", "start"),
    [
        ("public class Foo { public static void main(String[] a) {} }", "Foo", "Foo"),
        ("package a.b;\nclass A {}\n@X(A.class) public final class B<T> { void main(T... a) {} }", "B", "a.b.B"),
        ("class Helper {}\nclass Run { static public void main(final String[] a) {} }", "Helper", "Run"),
        ("public interface P { void f(); } class Q { public static void main(String[] a) {} }", "P", "Q"),
        ("class A { String s = \"public class B {\"; /* class C { */ char c = '{'; }", "A", "A"),
        ("class A { class B { void main() {} } } class D { void main() {} } class E { void main() {} }", "A", "D"),
        ("record R(int x) {}\nenum E { A, B }\nclass M { void g() { main(1); } }", "R", "R"),
        ('public class "../../x" {}', "Main", "Main"),
        (f"public class {'A' * 300} {{}}", "Main", "Main"),
        ("package ../../..;\nclass A {}", "A", "A"),
        ("", "Main", "Main"),
    ],
)  # fmt: skip
def test_the_classes_of_a_java_source(program: str, file: str, start: str) -> None:
    assert java_classes(program) == (file, start)


def job(language: str, limits: Limits | None = None, kind: str = "stdio") -> Job:
    tests = (Test("t", kind, {"stdin": "", "function": "f"}, None, "text", ""),)  # type: ignore[arg-type]
    return Job(language, "", tests, limits or Limits())


def test_a_compiler_has_limits_of_its_own() -> None:
    wire = wire_job(job("cpp", Limits(memory=64 * 2**20, processes=1)))
    assert wire["build"]["limits"]["memory"] == BUILD.memory
    assert (wire["limits"]["memory"], wire["limits"]["processes"]) == (64 * 2**20, 1)
    assert needs(job("cpp", Limits(memory=64 * 2**20))) == (BUILD.memory, BUILD.processes)
    assert needs(job("cpp", Limits(memory=2**40, processes=500))) == (2**40, 500)
    assert needs(job("python", Limits(memory=7, processes=3))) == (7, 3)


def test_a_java_program_has_its_limit_for_itself() -> None:
    wire = wire_job(job("java", Limits(memory=64 * 2**20, processes=1)))
    assert "-Xmx64m" in wire["tests"][0]["argv"]
    assert wire["limits"]["memory"] > 256 * 2**20
    assert wire["limits"]["processes"] > 20


@pytest.mark.parametrize("kind", ["call", "script"])
def test_only_python_has_tests_that_call(kind: str) -> None:
    with pytest.raises(UserError, match=f"'t' is a {kind} test: a program in rust has stdio tests only"):
        wire_job(job("rust", kind=kind))


def test_a_missing_compiler_is_no_compile_error() -> None:
    record = {"build": {"exit": 127, "stderr": "/usr/bin/env: 'rustc': No such file or directory\n"}}
    with pytest.raises(SandboxError, match=r"the compiler does not start: .*'rustc'"):
        execution(job("rust"), [record], 0.1)


@namespaces
async def test_a_missing_compiler_is_told_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPILED, "rust", replace(COMPILED["rust"], version=("rustc-0", "--version")))
    sandbox = LocalSandbox(lanes=1)
    try:
        with pytest.raises(UserError) as caught:
            await preflight.start(sandbox, ["python", "rust"])
    finally:
        await sandbox.close()
    assert "rustc-0: No such file or directory" in str(caught.value)
    assert "apt install rustc (rustc-web on Debian 12" in str(caught.value)


@namespaces
async def test_a_pass_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path))
    sandbox = LocalSandbox(lanes=1)
    try:
        first = await preflight.start(sandbox, ["python"])
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
        monkeypatch.setattr(preflight, "_CASES", (("hello", "hello", "hello, moon", "passed"),))
        assert await preflight.start(sandbox, ["python"]) == first
        monkeypatch.setenv("AGENTLOOP_CACHE", str(tmp_path / "other"))
        with pytest.raises(UserError) as caught:
            await preflight.start(sandbox, ["python"])
    finally:
        await sandbox.close()
    assert str(caught.value) == (
        "the sandbox local judges programs in python wrongly: case 'hello' must be 'passed' and is 'failed' "
        "(hello, world)"
    )
