"""CPU of the loop itself: graph, journal, store and judge dispatch, for a model that answers at once.

    python benchmarks/loop_overhead.py [ATTEMPTS] [--sandbox local]

Prints CPU milliseconds of this process per iteration (model calls are scripted, programs do nothing; programs run in
other processes and are not counted), the peak memory at each tenth of the run, and the rate of a replay.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from agentloop import config, planning, runner
from agentloop.replay import replay_all

PROBLEM = {
    "statement": "Write f(x) that returns x.",
    "language": "python",
    "entry_point": "f",
    "visible": [{"assert": "f(1) == 1"}],
    "hidden": [{"assert": "f(2) == 2"}],
}


class Meter:
    """Peak memory at each tenth of the run."""

    def __init__(self) -> None:
        self.done = 0
        self.peaks: list[int] = []
        self.every = 1

    def event(self, kind: str, /, **data: object) -> None:
        """Count finished attempts."""
        if kind == "plan":
            self.every = max(1, int(str(data["total"])) // 10)
        if kind == "done":
            self.done += 1
            if self.done % self.every == 0:
                self.peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def main() -> None:
    """Run, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("attempts", type=int, nargs="?", default=200)
    parser.add_argument("--sandbox", default="local")
    parser.add_argument("--keep", type=Path, help="an empty folder to work in and leave behind")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True)
    with nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        lines = [json.dumps({"id": f"p/{number}", **PROBLEM}) for number in range(options.attempts)]
        (base / "problems.jsonl").write_text("\n".join(lines) + "\n")
        # Three different wrong programs, so that every attempt uses its three iterations.
        replies = [f"```python\ndef f(x):\n    return x + {number}\n```" for number in (1, 2, 3)]
        (base / "script.jsonl").write_text(json.dumps({"choose": "turn", "replies": replies}) + "\n")
        experiment = config.parse(
            {
                "workload": {"name": "jsonl", "data": "problems.jsonl"},
                "models": [{"name": "scripted:script.jsonl"}],
                "strategies": [{"name": "feedback_loop", "settings": {"history": "full"}}],
                "sandbox": options.sandbox,
                "iterations": 3,
            }
        )
        plan = planning.make_plan(experiment, base)
        meter = Meter()
        cpu, wall = time.process_time(), time.monotonic()
        summary = asyncio.run(runner.run(plan, base / "run", meter))
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        iterations = summary.done * 3
        print(f"{summary.done} attempts, {iterations} iterations, {summary.faults} faults, {wall:.1f} s wall")
        print(f"CPU of the loop: {1000 * cpu / iterations:.2f} ms an iteration")
        print(f"peak memory at each tenth, MB: {meter.peaks}")
        replayed = replay_all(base / "run")
        rate = replayed.attempts / replayed.seconds
        print(f"replay: {replayed.attempts} attempts, equal={replayed.equal}, {rate:.0f} attempts/s")


if __name__ == "__main__":
    main()
