"""Headroom from Python: start runs, follow them, compare them, load their weights.

The program `headroom` does the work; this package starts it and reads what it
writes. It needs the standard library only.
"""

from headroom.comparison import compare
from headroom.errors import HeadroomError
from headroom.program import Written, detect, export, plan, val, verify
from headroom.run import Run, train
from headroom.table import Table
from headroom.weights import load_metadata, load_weights

__all__ = ["HeadroomError", "Run", "Table", "Written", "compare", "detect", "export",
           "load_metadata", "load_weights", "plan", "train", "val", "verify"]
