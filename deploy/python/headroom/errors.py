"""What goes wrong, as one exception."""

from __future__ import annotations

import importlib
from typing import Any

# The exit codes of the program, which its reference page lists.
REQUEST, DATA, RESOURCE, INTERRUPTED = 2, 4, 5, 130


class HeadroomError(RuntimeError):
    """The program refused or ended badly, or a file of a run is not as it should be.

    `exit_code` is that of the program: 2 the request is wrong, 3 no plan fits,
    4 the data, 5 stopped for want of a resource, 130 interrupted; a run that
    ended with 5 or 130 can be resumed. What this package refuses has the same
    numbers. `text` is what was said, in words.
    """

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text

    def __reduce__(self) -> Any:
        return type(self), (self.exit_code, self.text)


def optional_package(name: str, purpose: str) -> Any:
    """The module, which only `purpose` needs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise HeadroomError(
            REQUEST, f"[client] {purpose} needs {name}, which cannot be imported ({error}): "
            f"pip install {name}") from error
