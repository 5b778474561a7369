"""Before a run starts: does the sandbox tell known programs apart, in every language that the run needs?

Each language has one probe program whose first line of input says what to do: greet, crash, loop, eat memory, flood its
output, reach out. What a sandbox passed on this machine since its boot is not asked again.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentloop.catalog import sandbox_spec
from agentloop.errors import UserError, unknown_name
from agentloop.fetch import cache_dir
from agentloop.hashing import digest
from agentloop.progress import Quiet
from agentloop.sandbox import open_sandbox
from agentloop.sandbox.compiled import COMPILED
from agentloop.sandbox.engine import boot
from agentloop.types import LANGUAGES, Job, Limits, Suite, Test
from agentloop.verdict import judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentloop.progress import Observer
    from agentloop.protocols import Sandbox
    from agentloop.types import Execution, Json

MIB = 2**20
LIMITS = Limits(cpu=1.5, wall=60.0, memory=128 * MIB, output=64 * 2**10)
_SUFFIX = {"python": "py", "c": "c", "cpp": "cpp", "java": "java", "rust": "rs"}
_CRASH = {
    "python": "ZeroDivisionError",
    "c": "SIGSEGV",
    "cpp": "SIGABRT",
    "java": "ArithmeticException",
    "rust": "panic",
}
_CASES = (  # what it is called, first line of input, expected output, what must come out
    ("hello", "hello", "hello, world", "passed"),
    ("wrong answer", "hello", "goodbye, world", "failed"),
    ("runtime error", "crash", "", "runtime_error {crash}"),
    ("memory", "memory", "", "runtime_error memory_limit"),
    ("output flood", "flood", "", "runtime_error output_limit"),
    ("network", "network", "refused", "passed"),
    ("timeout", "loop", "", "timeout cpu_limit"),
)
_VERSIONS = """
import json, subprocess
found = {}
for language, argv in json.loads(input()).items():
    try:
        done = subprocess.run(argv, capture_output=True, text=True)
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it says nothing"]
        found[language] = [done.returncode == 0, lines[0]]
    except OSError as error:
        found[language] = [False, f"{argv[0]}: {error.strerror}"]
print(json.dumps(found))
"""


def _known(language: str) -> str:
    if language not in LANGUAGES:
        raise unknown_name("language", language, LANGUAGES)
    return language


def probe(language: str) -> tuple[Job, list[str]]:
    """The probe program of a language as a job, and what each of its tests must come out as. Raises `UserError`."""
    _known(language)
    path = Path(__file__).parent / "sandbox" / "probes" / f"probe.{_SUFFIX[language]}"
    tests = [Test(name, "stdio", {"stdin": f"{mode}\n"}, {"stdout": out}, "text", "") for name, mode, out, _ in _CASES]
    expected = [outcome.format(crash=_CRASH[language]) for *_, outcome in _CASES]
    return Job(language, path.read_text(encoding="utf-8"), tuple(tests), LIMITS), expected


def broken(language: str) -> tuple[Job, list[str]]:
    """The same program cut short, which is a compile error."""
    job, _ = probe(language)
    test = replace(job.tests[0], id="compile error")
    return replace(job, program=job.program.rstrip()[:-2] + "(", tests=(test,)), ["compile_error"]


def check_jobs(jobs: int) -> None:
    """Raises `UserError` where not even one program could run at a time."""
    if jobs < 1:
        raise UserError(f"jobs = {jobs}: it is how many programs run at once, 1 at least")


def opened(spec: str, base: Path, lanes: int, observer: Observer, *, validated_in: str = "") -> Sandbox:
    """The sandbox of a name or a profile (`base`: where a relative path starts), not yet started. Raises `UserError`.

    The observer is told what takes long, such as building an image, and where it is not the backend that the validation
    of the problems was made in.
    """
    check_jobs(lanes)
    sandbox = open_sandbox(
        sandbox_spec(spec, base),
        lanes=lanes,
        progress=lambda line: observer.event("phase", text=f"sandbox: {line}"),
    )
    if validated_in not in ("", sandbox.name):
        text = f"the problems were validated in the sandbox {validated_in}, programs run in {sandbox.name}: limits of"
        observer.event("notice", text=f"{text} CPU time and what passes may differ there")
    return sandbox


async def start(sandbox: Sandbox, languages: Iterable[str], observer: Observer | None = None) -> dict[str, Json]:
    """Start a sandbox for programs in these languages; its environment, with a toolchain for each of them.

    The observer is told when it begins, and how programs are isolated. Raises `UserError` where a toolchain is missing,
    and where a known program does not come out as it must.
    """
    observer = observer or Quiet()
    observer.event("phase", text=f"starting sandbox {sandbox.name}")
    environment = await sandbox.start()
    wanted = sorted(set(languages))
    found = await toolchains(sandbox, wanted)
    for language, (works, text) in found.items():
        if not works:
            raise UserError(missing(sandbox.name, language, text))
    environment["toolchain"] = {**environment["toolchain"], **{name: _flags(name, found[name][1]) for name in found}}
    await asyncio.gather(*(_check(sandbox, environment, language) for language in wanted))
    observer.event("notice", text=f"sandbox: {environment['isolation']}")
    return environment


async def toolchains(sandbox: Sandbox, languages: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """Of each compiled language: whether its compiler runs in the started sandbox, and its version or what is wrong.

    Raises `UserError` for a language that is none.
    """
    asked = {name: COMPILED[name].version for name in map(_known, languages) if name in COMPILED}
    if not asked:
        return {}
    test = Test("versions", "stdio", {"stdin": json.dumps(asked)}, None, "text", "")
    limits = Limits(cpu=60.0, wall=120.0, processes=128)
    execution = await sandbox.execute(Job("python", _VERSIONS, (test,), limits))
    try:
        found = json.loads(execution.tests[0]["stdout"])
        return {name: (bool(works), str(text)) for name, (works, text) in found.items()}
    except (ValueError, IndexError) as error:
        raise UserError(f"the sandbox {sandbox.name} does not run Python: {execution}"[:400]) from error


def missing(sandbox: str, language: str, text: str) -> str:
    """What to do about a compiler that a sandbox does not have."""
    package = COMPILED[language].package
    what = f"programs in {language} do not work in the sandbox {sandbox} ({text}): "
    if sandbox.startswith("local"):
        return what + (
            f"use --sandbox docker, or install the compiler for the whole system, on Debian by apt install {package}; "
            "what a home directory holds, as with rustup, is not seen in it"
        )
    return what + f"its image needs the compiler, on Debian {package}"


def _flags(language: str, version: str) -> dict[str, Json]:
    entry = COMPILED[language]
    return {"version": version, "build": " ".join(entry.build), "run": " ".join(entry.run("", Limits()))}


async def _check(sandbox: Sandbox, environment: dict[str, Json], language: str) -> None:
    parts = [probe(language), broken(language)]
    passed = cache_dir() / "preflight" / digest([environment, [job.program for job, _ in parts], boot()])
    if passed.exists():
        return
    # A profile's wall time may be so near its CPU time that on a busy machine it comes first.
    either = "wall" in environment.get("limits", {})
    for job, outcomes in parts:
        wanted = [one.removesuffix(" cpu_limit") if either else one for one in outcomes]
        if wrong := mismatch(job, wanted, await sandbox.execute(job)):
            raise UserError(f"the sandbox {sandbox.name} judges programs in {language} wrongly: {wrong}")
    passed.parent.mkdir(parents=True, exist_ok=True)
    passed.touch()


def mismatch(job: Job, wanted: list[str], execution: Execution) -> str:
    """The first test of a job that did not come out as it must ("OUTCOME" or "OUTCOME DETAIL"), or ''."""
    verdict = judge(Suite("hidden", job.tests), execution)
    for test, one in zip(verdict.tests, wanted, strict=True):
        outcome, _, detail = one.partition(" ")
        if test.outcome != outcome or (detail and test.detail != detail):
            got = f"{test.outcome} {test.detail}".strip()
            said = f" ({test.got.strip().splitlines()[-1][:200]})" if test.got.strip() else ""
            return f"case {test.test!r} must be {one!r} and is {got!r}{said}"
    return ""
