"""Do the makers' own harnesses explain their verdicts? Stored programs run as LDB and MapCoder ran them.

    python benchmarks/shared_namespace.py [--data DIR] [--sandbox docker] [--fresh] [--imports] [SET ...]

Both run program after program in one namespace of one process, so each program sees what the ones before it left: their
imports, their helpers, and names of Python that they hid. This does the same inside the sandbox, in the order of the
file (theirs is unknown: they had several workers), and prints per run how many stored verdicts come out and which do
not. `--fresh` gives each program a namespace of its own; `--imports` begins with LDB's imports. Sets: ldb_seeds,
ldb_repair_traces (LDB), mapcoder_humaneval. What a program gets besides is as in `stored_verdicts.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

from stored_verdicts import DATA, FILES, WHOLE, test_codes

from agentloop.sandbox import open_sandbox
from agentloop.types import Job, Limits, Test
from agentloop.workloads import load

SETS = {"ldb_seeds": 20, "ldb_repair_traces": 10, "mapcoder_humaneval": 5}
"""Each with the seconds that its makers gave a program."""
IMPORTS = "import heapq, itertools, math, re, typing\nfrom heapq import *\nfrom typing import *\n"
LIMITS = Limits(cpu=500.0, wall=580.0, memory=2**30, output=2**20)
"""Of a whole run: some hundred programs in one process."""
RUNNER = """
import json, os, resource, signal

class Late(Exception):
    pass

def late(*_):
    raise Late()

def main(items, fresh, start):
    out, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    run, signal_, exit_, write, dumps = exec, signal.setitimer, os._exit, os.write, json.dumps
    signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (700 * 2**20,) * 2)  # a MemoryError ends one program, not the run
    shared, results = {"__name__": "executor"}, []
    run(start, shared)
    for codes, limit in items:
        space = {"__name__": "executor"} if fresh else shared
        if fresh:
            run(start, space)
        found = ""
        for number, code in enumerate(codes, 1):
            try:
                signal_(signal.ITIMER_REAL, limit if number == len(codes) else 1)
                run(code, space)
                found = ""
            except BaseException as error:
                found = type(error).__name__ + ": " + str(error)[:80]
            finally:
                signal_(signal.ITIMER_REAL, 0)
        results.append(found)
    write(out, dumps(results).encode())
    exit_(0)

main(*json.loads(ITEMS))
"""


def codes_of(name: str, record: dict[str, Any], test: str, prompt: str) -> list[str]:
    """What the makers ran for one record, in order; the last one decides."""
    code = record["codes"][-1]
    if not WHOLE.search(code):
        code = f"{prompt}\n{code}"
    if name == "mapcoder_humaneval":
        return [f"from typing import *\n{code}\n{test}"]
    shown = record["extra"].get("given_tests", [])  # LDB runs every attempt on the visible asserts first
    tried = [f"from typing import *\n{each}\n{given}" for each in record["codes"] for given in shown]
    return [*tried, f"{code}\n{test}"]


async def study(options: argparse.Namespace, name: str, workload: str) -> None:
    """Run one set as its makers did and print what differs."""
    prompts = {each.id: each.stub for each in load(workload, options.data / FILES[workload])}
    tests = test_codes(name, workload, options.data)
    runs: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(options.data / f"llm_outputs/{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            if record["benchmark"] == workload and record["passed"] is not None:
                runs.setdefault(record["run"], []).append(record)
    sandbox = open_sandbox(options.sandbox, lanes=1)
    await sandbox.start()
    try:
        for run, records in runs.items():
            ids = [f"{'HumanEval' if workload == 'humaneval' else 'Mbpp'}/{each['task_number']}" for each in records]
            items = [
                (codes_of(name, record, tests[id], prompts[id]), SETS[name])
                for id, record in zip(ids, records, strict=True)
            ]
            arguments = json.dumps([items, options.fresh, IMPORTS if options.imports else ""])
            test = Test("run", "stdio", {"stdin": ""}, {"stdout": ""}, "text", "")
            job = Job("python", f"ITEMS = {arguments!r}\n{RUNNER}", (test,), LIMITS)
            evidence: dict[str, Any] = (await sandbox.execute(job)).tests[0]
            if evidence["exit"] != 0:
                print(f"{run}: no verdicts: {evidence['limit'] or evidence['stderr'][-300:]}", flush=True)
                continue
            found = list(zip(ids, records, json.loads(evidence["stdout"]), strict=True))
            differ = [each for each in found if each[1]["passed"] != (each[2] == "")]
            for id, record, error in differ:
                print(f"  {id} {record['model']}: stored {record['passed']}, here {error or 'passed'}")
            print(f"{run}: {len(found) - len(differ)} of {len(found)} stored verdicts come out", flush=True)
    finally:
        await sandbox.close()


async def main() -> int:
    """Run the sets and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[*SETS], metavar="SET")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sandbox", default="docker")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--imports", action="store_true")
    options = parser.parse_args()
    unknown = set(options.sets) - {*SETS}
    if unknown:
        parser.error(f"unknown sets {', '.join(sorted(unknown))}; known: {', '.join(SETS)}")
    for name in options.sets:
        for workload in ("humaneval", "mbpp"):
            await study(options, name, workload)
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
