"""Comparison of runs."""

from __future__ import annotations

import os
from typing import Iterable, Optional, Union

from headroom_train.program import PathLike, call_json
from headroom_train.run import Run
from headroom_train.table import Table


def compare(runs: Iterable[Union[Run, PathLike]], *, program: Optional[PathLike] = None) -> Table:
    """The table that `headroom status` prints of these runs and folders of runs, and more.

    A line for each run: `state`; `map50` and `map` of the best weights; `peak_bytes`, the
    largest tensor memory of a step on any rank; `images_per_second`, the median over the
    steps; `seconds`; and `settings`, those in which the runs differ, as texts. After these
    columns come what the run's files say of its length, its best epoch, its last loss and
    its repeated steps. A figure that is not known yet is None.
    """
    runs = list(runs)
    paths = [os.path.abspath(run.path if isinstance(run, Run) else run) for run in runs]
    if not paths:
        return Table()
    if program is None:
        named = (run._program for run in runs if isinstance(run, Run))
        program = next((one for one in named if one is not None), None)
    # Of one run alone the program prints its status, so a single path is named twice.
    lines = call_json("status", paths if len(paths) > 1 else paths * 2, program)
    for line in lines:
        del line["folder"]
    return Table(lines)
