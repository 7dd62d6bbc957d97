"""The exception of this package."""

from __future__ import annotations

import importlib
from typing import Any

# The program's exit codes, as in its reference page.
REQUEST, DATA, RESOURCE, INTERRUPTED = 2, 4, 5, 130


class HeadroomError(RuntimeError):
    """The program refused or failed, or a file of a run is damaged.

    `exit_code` is that of the program: 2 the request is wrong, 3 no plan fits,
    4 the data is wrong, 5 stopped because a resource was missing, 130 interrupted. A
    run that ended with 5 or 130 can be resumed. This package's own refusals use the
    same numbers. `text` is the message.
    """

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text

    def __reduce__(self) -> Any:
        return type(self), (self.exit_code, self.text)


class MissingPackage(HeadroomError, ImportError):
    """An optional package, which only some functions need, cannot be imported."""


def optional_package(name: str, purpose: str, distribution: str = "") -> Any:
    """Imports a module that only `purpose` needs; `distribution` is its name for pip."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackage(
            REQUEST, f"[client] {purpose} needs {name}, which cannot be imported ({error}): "
            f"pip install {distribution or name}") from error
