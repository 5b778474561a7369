"""What isolation costs: tests per second through the judge, as a share of bare processes of the same interpreter.

    python benchmarks/judge_overhead.py [--level namespaces|reduced] [--jobs 40] [--tests 8]

Both sides run the same program with the same inputs on as many workers, in alternating rounds of one run, so that the
ratio holds even where the machine's speed does not; the CPU time of each side, all its processes together, says the
same with less noise on a busy machine. The bare side does nothing but start the interpreter, feed stdin
and read stdout: no isolation, no limits, no clean-up, no compile step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agentloop.sandbox.languages import PYTHON
from agentloop.sandbox.local import LocalSandbox, command
from agentloop.types import Job, Limits, Test

PROGRAM = "import sys\nprint(sum(int(word) for line in sys.stdin for word in line.split()))\n"
ROUNDS = 5


def bare(python: str, program: Path, inputs: list[str], workers: int) -> float:
    def one(text: str) -> None:
        done = subprocess.run(
            [python, *PYTHON[1:], str(program)], input=text, capture_output=True, text=True, check=True
        )
        assert done.stdout

    begin = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, inputs))
    return len(inputs) / (time.perf_counter() - begin)


async def judged(sandbox: LocalSandbox, inputs: list[str], tests: int) -> float:
    cases = [Test(str(n), "stdio", {"stdin": text}, None, "text", "") for n, text in enumerate(inputs)]
    jobs = [Job("python", PROGRAM, tuple(cases[n : n + tests]), Limits()) for n in range(0, len(cases), tests)]
    begin = time.perf_counter()
    for execution in await asyncio.gather(*map(sandbox.execute, jobs)):
        assert all(record["exit"] == 0 for record in execution.tests)
    return len(inputs) / (time.perf_counter() - begin)


def spent() -> float:
    """CPU seconds of this process and its children that have ended; a lane's count when the sandbox closes."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=("namespaces", "reduced"), default="namespaces")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--tests", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    inputs = [f"{n} {n + 1}\n{n + 2}\n" for n in range(options.jobs * options.tests)]
    sandbox = LocalSandbox(lanes=options.workers, reduced=options.level == "reduced")
    rates: dict[str, list[float]] = {"bare": [], "judge": []}
    cpu, begin = {"bare": 0.0, "judge": 0.0}, 0.0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "main.py"
        program.write_text(PROGRAM)
        python = command(options.level, (None, None))[0]
        try:
            environment = await sandbox.start()
            await judged(sandbox, inputs[: 2 * options.tests], options.tests)
            begin = spent()
            for _ in range(ROUNDS):
                before = spent()
                rates["bare"].append(await asyncio.to_thread(bare, python, program, inputs, options.workers))
                cpu["bare"] += spent() - before
                rates["judge"].append(await judged(sandbox, inputs, options.tests))
        finally:
            await sandbox.close()
    cpu["judge"] = spent() - begin - cpu["bare"]
    each = {key: round(1000 * seconds / (ROUNDS * len(inputs)), 1) for key, seconds in cpu.items()}
    ratio = statistics.median(judge / plain for judge, plain in zip(rates["judge"], rates["bare"], strict=True))
    result = {key: round(statistics.median(values), 1) for key, values in rates.items()}
    shares = {"ratio": round(ratio, 2), "cpu_ratio": round(cpu["bare"] / cpu["judge"], 2)}
    print(json.dumps({"isolation": environment["isolation"], "tests_per_second": result, "cpu_ms": each, **shares}))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
