"""Starts the programs in this folder with the LibTorch that pip installed.

The launchers in bin/, which are those of the bundle, set the paths of libraries.
"""

import importlib.metadata
import os
import pathlib
import sys
from typing import NoReturn, Tuple

_TORCH = "2.11.0"


def _libtorch() -> Tuple[str, str]:
    """The folder that contains torch/, or "" and the reason why there is none."""
    install = f"{sys.executable} -m pip install torch=={_TORCH}"
    try:
        torch = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        return "", f"torch is not installed in {sys.prefix}: {install}"
    if torch.version.partition("+")[0] != _TORCH:  # 2.11.0+cpu will do
        return "", (f"torch {torch.version} is installed in {sys.prefix}, "
                    f"but {_TORCH} is needed: {install}")
    return str(torch.locate_file("")), ""


def _start(name: str) -> NoReturn:
    if not os.environ.get("HEADROOM_LIBTORCH"):
        folder, reason = _libtorch()
        # Some commands need no tensors, so this is not an error: the launcher
        # decides.
        os.environ.update({"HEADROOM_PIP_LIBTORCH": folder, "HEADROOM_NO_LIBTORCH": reason})
    launcher = pathlib.Path(__file__).resolve().parent / "bin" / name
    os.execv("/bin/sh", ["sh", str(launcher), *sys.argv[1:]])


def headroom() -> NoReturn:
    _start("headroom")


def headroom_worker() -> NoReturn:
    _start("headroom-worker")
