"""Comparison of runs."""

from __future__ import annotations

import statistics
from typing import Iterable, Union

from headroom_train.program import PathLike
from headroom_train.run import Run
from headroom_train.table import Record, Table


def compare(runs: Iterable[Union[Run, PathLike]]) -> Table:
    """One line per run: state, progress, quality, speed and memory.

    `map50` and the other metrics are those of the best weights so far, None before the
    first validation; `images_per_second` is the median over steps; `peak_bytes` is the
    largest tensor memory of a step on any rank.
    """
    return Table(_line(run if isinstance(run, Run) else Run(run)) for run in runs)


def _line(run: Run) -> Record:
    steps = run.steps()
    summary = run.summary if (run.path / "summary.json").exists() else {}
    peaks = [rank["measured_peak_bytes"] for step in steps for rank in step["memory"]]
    line: Record = {"run": run.path.name, "state": run.state, "steps": len(steps),
                    "epochs": len(run.epochs())}
    for name in ("precision", "recall", "map50", "map", "best_epoch"):
        line[name] = summary.get(name)
    line["loss"] = steps[-1]["loss"] if steps else None
    line["images_per_second"] = (
        statistics.median(step["images_per_second"] for step in steps) if steps else None)
    line["peak_bytes"] = max(peaks, default=None)
    line["retries"] = sum(step["attempt"] - 1 for step in steps)
    line["generations"] = max((step["generation"] for step in steps), default=None)
    line["seconds"] = summary.get("wall_seconds")
    return line
