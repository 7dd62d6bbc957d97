"""Comparison of runs."""

from __future__ import annotations

import os
from typing import Iterable, Optional, Union

from headroom_train.program import PathLike, call_json
from headroom_train.run import Run
from headroom_train.table import Table


def compare(runs: Iterable[Union[Run, PathLike]], *, program: Optional[PathLike] = None) -> Table:
    """The table that `headroom status` prints of these runs and folders of runs.

    A line for each run: `state`; `map50` and `map` of the best weights; `peak_bytes`, the
    largest tensor memory of a step on any rank; `images_per_second`, the median over the
    steps; `seconds`; and `settings`, those in which the runs differ, as texts. A figure that
    is not known yet is None.
    """
    paths = [os.path.abspath(run.path if isinstance(run, Run) else run) for run in runs]
    if not paths:
        return Table()
    # Of one run alone the program prints its status, so a single path is named twice.
    return Table(call_json("status", paths if len(paths) > 1 else paths * 2, program))
