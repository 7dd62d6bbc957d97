"""Headroom from Python: start runs, follow and compare them, and detect with their weights.

The program `headroom` does the work; this package starts it and reads what it
writes. It needs the standard library only; a Detector needs numpy.
"""

from headroom_train.comparison import compare
from headroom_train.detector import Detector
from headroom_train.errors import HeadroomError, MissingPackage
from headroom_train.program import Written, detect, export, plan, val, verify
from headroom_train.results import Results, write_results
from headroom_train.run import Run, train
from headroom_train.samples import samples_of
from headroom_train.table import Table
from headroom_train.weights import load_metadata, load_weights

__all__ = ["Detector", "HeadroomError", "MissingPackage", "Results", "Run", "Table", "Written",
           "compare", "detect", "export", "load_metadata", "load_weights", "plan", "samples_of",
           "train", "val", "verify", "write_results"]
