"""What a compiled program costs in a sandbox: 20 C++ programs x 10 tests, against g++ and the bare runs.

    python benchmarks/compiled_overhead.py [--sandbox local|docker] [--programs 20] [--tests 10] [--rounds 3]

Both sides compile each program once, with the same compiler and flags, and run it on the same inputs, two programs at a
time, in alternating rounds of one run. The bare side has no isolation, no limits and no clean-up. For `docker` the bare
side uses the compiler of this machine: its version should be that of the image (both are printed).
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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from agentloop import preflight
from agentloop.protocols import Sandbox
from agentloop.sandbox import open_sandbox
from agentloop.sandbox.compiled import COMPILED
from agentloop.types import Job, Limits, Test

PROGRAM = """
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
int main() {
    std::vector<long> all;
    std::map<std::string, long> count;
    for (long x; std::cin >> x;) { all.push_back(x * NUMBER); count[std::to_string(x % 7)]++; }
    std::sort(all.begin(), all.end());
    long sum = 0;
    for (long x : all) sum += x;
    std::cout << sum << ' ' << count.size() << std::endl;
}
"""


def bare(programs: list[str], inputs: list[str], workers: int) -> float:
    # Sessions of their own, like those of the judge: Linux shares out the CPU by session (autogroup).
    run = partial(subprocess.run, check=True, start_new_session=True)

    def one(program: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "main.cpp").write_text(program)
            words = COMPILED["cpp"].build[2:]  # without the setting of TMPDIR
            run([word.replace("{source}", "main.cpp") for word in words], cwd=folder)
            for text in inputs:
                run([f"{folder}/main"], input=text, capture_output=True, text=True)

    begin = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, programs))
    return time.perf_counter() - begin


async def judged(sandbox: Sandbox, programs: list[str], inputs: list[str]) -> float:
    tests = tuple(Test(str(n), "stdio", {"stdin": text}, None, "text", "") for n, text in enumerate(inputs))
    begin = time.perf_counter()
    for execution in await asyncio.gather(*(sandbox.execute(Job("cpp", each, tests, Limits())) for each in programs)):
        assert execution.build is not None
        assert [record["exit"] for record in (execution.build, *execution.tests)] == [0] * (len(tests) + 1), execution
    return time.perf_counter() - begin


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox", choices=("local", "docker"), default="local")
    parser.add_argument("--programs", type=int, default=20)
    parser.add_argument("--tests", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    programs = [PROGRAM.replace("NUMBER", str(n + 1)) for n in range(options.programs)]
    inputs = [" ".join(str(n * k) for n in range(1000)) for k in range(1, options.tests + 1)]
    host = subprocess.run(COMPILED["cpp"].version, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    seconds: dict[str, list[float]] = {"bare": [], "judge": []}
    sandbox = open_sandbox(options.sandbox, lanes=2)
    try:
        begin = time.perf_counter()
        environment = await preflight.start(sandbox, ["cpp"])
        started = time.perf_counter() - begin
        await judged(sandbox, programs[:2], inputs)
        for _ in range(options.rounds):
            seconds["bare"].append(await asyncio.to_thread(bare, programs, inputs, 2))
            seconds["judge"].append(await judged(sandbox, programs, inputs))
    finally:
        await sandbox.close()
    ratio = statistics.median(judge / plain for judge, plain in zip(seconds["judge"], seconds["bare"], strict=True))
    versions = {"bare": host, "judge": environment["toolchain"]["cpp"]["version"]}
    medians = {key: round(statistics.median(values), 2) for key, values in seconds.items()}
    print(json.dumps({"versions": versions, "start": round(started, 1), "seconds": medians, "ratio": round(ratio, 2)}))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
