"""What isolation costs: tests per second through the judge, as a share of bare processes of the same interpreter.

    python benchmarks/judge_overhead.py [--sandbox docker] [--programs 100] [--rounds 5] [--others]

Two sets: HumanEval references, one process for each assert of their hidden suites; and a program that sums its input,
ten inputs each. The floor starts the same interpreter with the same flags for each of these tests, two at a time, feeds
stdin and reads stdout: no isolation, no limits, no clean-up. Rounds of all ways alternate, so that the ratios (medians
over rounds) hold even where the machine's speed does not. `--others` adds ways that are usual elsewhere: a container
for each test, a container for ten tests, and one for thirty, with an exec each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentloop.catalog import root
from agentloop.errors import AgentloopError
from agentloop.plain import to_source
from agentloop.sandbox.languages import PYTHON
from agentloop.types import Job, Limits, Suite, Test
from agentloop.verdict import judge
from agentloop.workloads import load

if TYPE_CHECKING:
    from agentloop.protocols import Sandbox

LANES = 2
SUM = "import sys\nprint(sum(int(word) for line in sys.stdin for word in line.split()))\n"
Bare = list[tuple[str, str]]
"""Programs of the floor, one a test: source and stdin."""


def humaneval(count: int) -> tuple[list[tuple[Job, Suite]], Bare]:
    """References with their hidden suites, and for each assert a program that says the same."""
    jobs: list[tuple[Job, Suite]] = []
    bare: Bare = []
    for problem in load("humaneval", None):
        tests = tuple(test for test in problem.hidden.tests if test.kind == "call")
        if tests and len(jobs) < count:
            suite = replace(problem.hidden, tests=tests)
            jobs.append((Job("python", problem.references[0], tests, problem.limits, pool="grade"), suite))
            bare += [(f"{problem.references[0]}\n\nprint({_call(test)})\n", "") for test in tests]
    return jobs, bare


def _call(test: Test) -> str:
    named = [f"{name}={to_source(part)}" for name, part in test.input["kwargs"].items()]
    return f"{test.input['function']}({', '.join([*map(to_source, test.input['args']), *named])})"


def sums(count: int) -> tuple[list[tuple[Job, Suite]], Bare]:
    """`count` programs with ten inputs each."""
    texts = [f"{n} {n + 1}\n{n + 2}\n" for n in range(10)]
    tests = tuple(
        Test(str(n), "stdio", {"stdin": text}, {"stdout": f"{3 * n + 3}\n"}, "text", "") for n, text in enumerate(texts)
    )
    jobs = [
        (Job("python", f"{SUM}# {n}\n", tests, Limits(), pool="grade"), Suite("hidden", tests)) for n in range(count)
    ]
    return jobs, [(job.program, text) for job, _ in jobs for text in texts]


def floor(python: str, folder: Path, programs: Bare) -> float:
    """Tests per second of bare processes, `LANES` at a time."""
    files = []
    for number, (source, stdin) in enumerate(programs):
        path = folder / f"{number}.py"
        path.write_text(source)
        files.append((str(path), stdin))

    def one(item: tuple[str, str]) -> None:
        path, stdin = item
        subprocess.run(
            [python, *PYTHON[1:], path], input=stdin, capture_output=True, text=True, check=True, start_new_session=True
        )

    with ThreadPoolExecutor(LANES) as pool, timed(len(files)) as rate:
        list(pool.map(one, files))
    return rate()


async def judged(sandbox: Sandbox, jobs: list[tuple[Job, Suite]]) -> float:
    """Tests per second through a sandbox, verdicts included; every one of them must pass."""

    async def one(job: Job, suite: Suite) -> None:
        verdict = judge(suite, await sandbox.execute(job))
        assert verdict.outcome == "passed", verdict

    with timed(sum(len(job.tests) for job, _ in jobs)) as rate:
        await asyncio.gather(*(one(job, suite) for job, suite in jobs))
    return rate()


def container_each(image: str, programs: Bare) -> float:
    """A container for each test: `docker run`."""
    with ThreadPoolExecutor(LANES) as pool, timed(len(programs)) as rate:
        list(pool.map(lambda item: _docker(["run", "--rm", "-i", "--network=none", image], item), programs))
    return rate()


def exec_each(image: str, a_container: int, programs: Bare) -> float:
    """A container for `a_container` tests at a time, an exec a test."""

    def some(items: Bare) -> None:
        start = ["docker", "run", "--rm", "-d", "--network=none", image, "sleep", "1000"]
        name = subprocess.run(start, capture_output=True, text=True, check=True).stdout.strip()
        for item in items:
            _docker(["exec", "-i", name], item)
        subprocess.run(["docker", "kill", name], capture_output=True, check=True)

    groups = [programs[at : at + a_container] for at in range(0, len(programs), a_container)]
    with ThreadPoolExecutor(LANES) as pool, timed(len(programs)) as rate:
        list(pool.map(some, groups))
    return rate()


def _docker(words: list[str], item: tuple[str, str]) -> None:
    source, stdin = item
    command = ["docker", *words, "python3", *PYTHON[1:], "-c", source]
    subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, start_new_session=True)


@contextmanager
def timed(count: int) -> Iterator[Callable[[], float]]:
    begin = time.perf_counter()
    end: list[float] = []
    yield lambda: count / (end[0] - begin)
    end.append(time.perf_counter())


def sandboxes(spec: str) -> dict[str, Sandbox]:
    """The ways to compare, by name."""
    from agentloop.sandbox import open_sandbox
    from agentloop.sandbox.docker import DockerSandbox

    if spec != "docker":
        return {spec: open_sandbox(spec, lanes=LANES)}
    recipe = root() / "sandboxes" / "docker"
    return {name: DockerSandbox(recipe, lanes=LANES, interpreter=name) for name in ("new", "forked")}


async def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox", default="docker")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--others", action="store_true", help="also ways that are usual elsewhere (docker only)")
    options = parser.parse_args()
    ways = sandboxes(options.sandbox)
    try:
        for sandbox in ways.values():
            await sandbox.start()
        image = str(getattr(ways.get("new"), "image", ""))
        others: dict[str, Callable[[Bare], float]] = {}
        if options.others and image:
            others = {
                "container for each": partial(container_each, image),
                "container for ten, exec each": partial(exec_each, image, 10),
                "container for thirty, exec each": partial(exec_each, image, 30),
            }
        # The floor is the interpreter of the sandbox, where the host has it: else this one's version would be measured.
        python = "/usr/bin/python3" if options.sandbox == "docker" else sys._base_executable  # type: ignore[attr-defined]
        for title, (jobs, bare) in {"humaneval": humaneval(options.programs), "stdio": sums(options.programs)}.items():
            rates: dict[str, list[float]] = {}
            for sandbox in ways.values():
                await judged(sandbox, jobs[:4])
            for _ in range(options.rounds):
                with tempfile.TemporaryDirectory() as folder:
                    rates.setdefault("floor", []).append(await asyncio.to_thread(floor, python, Path(folder), bare))
                for name, sandbox in ways.items():
                    rates.setdefault(name, []).append(await judged(sandbox, jobs))
                for name, way in others.items():
                    rates.setdefault(name, []).append(await asyncio.to_thread(way, bare[:60]))
            shares = {
                name: round(statistics.median(one / base for one, base in zip(each, rates["floor"], strict=True)), 3)
                for name, each in rates.items()
            }
            median = {name: round(statistics.median(each), 1) for name, each in rates.items()}
            print(json.dumps({"set": title, "tests": len(bare), "tests_per_second": median, "share_of_floor": shares}))
    except AgentloopError as error:
        print(f"judge_overhead: {error}", file=sys.stderr)
        return 1
    finally:
        for sandbox in ways.values():
            await sandbox.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
