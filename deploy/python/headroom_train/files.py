"""The files of a run, which may grow while they are read.

Only complete lines count: the incomplete last line of a running or killed run is
left out.
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
from typing import Any, BinaryIO, Iterator, List, Optional

from headroom_train.errors import DATA, REQUEST, HeadroomError
from headroom_train.table import Record, Table

# This file exists while an older run's files are still in a new run's folder.
_OLDER_RUN = ".older-run"


def _record(line: bytes, place: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError:  # not UTF-8, or not JSON
        record = None
    if not isinstance(record, dict):
        raise HeadroomError(DATA, f"[client] {place} is no JSON object: the file is damaged there; "
                            "copy the run again, or cut the file before that line")
    return record


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    for line in file:
        if line.endswith(b"\n"):
            yield line


def read_records(path: pathlib.Path) -> Table:
    """All lines of a file of JSON lines; none if the file does not exist yet."""
    try:
        with path.open("rb") as file:
            return Table(_record(line, f"{path}:{number}")
                         for number, line in enumerate(whole_lines(file), 1))
    except FileNotFoundError:
        return Table()


def read_document(path: pathlib.Path, when: str) -> Any:
    """Reads a file that is one JSON object; `when` is the time at which it is written, for messages."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise HeadroomError(REQUEST,
                            f"[client] {path} is not there: it is written {when}") from None
    return _record(text, str(path))


def _number(text: str) -> Any:
    if text == "":
        return None  # the epoch was not validated
    try:
        return int(text)
    except ValueError:
        return float(text)


def read_results(path: pathlib.Path) -> Table:
    """results.csv by the names of its columns, which are YOLOv5's."""
    try:
        with path.open("rb") as file:
            lines = [line.decode() for line in whole_lines(file)]
    except FileNotFoundError:
        return Table()
    table = Table()
    for number, record in enumerate(csv.DictReader(lines, skipinitialspace=True), 2):
        try:
            table.append({name: _number(text) for name, text in record.items()})
        # A line has a wrong number of cells, or a cell is not a number.
        except (TypeError, ValueError):
            raise HeadroomError(DATA, f"[client] {path}:{number} is no line of numbers: the file "
                                "is damaged there; copy the run again") from None
    return table


class StepReader:
    """Reads steps.jsonl while it grows: each step once, in order.

    A resumed run removes the lines after its checkpoint and makes these steps again.
    They are the same steps, so they are returned only once.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._file: Optional[BinaryIO] = None
        self._offset = 0
        self._last = b""  # the line that ends at the offset
        self._next_step = 0
        self._is_replaced = False

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def new_steps(self) -> List[Record]:
        """The steps that were committed since the last call."""
        if (self._path.parent / _OLDER_RUN).exists():
            return []
        file = self._opened()
        if file is None:
            return []
        file.seek(self._offset - len(self._last))
        if file.read(len(self._last)) != self._last:  # the file was cut
            self._offset, self._last = 0, b""
            file.seek(0)
        steps = []
        for line in whole_lines(file):
            record = _record(line, f"{self._path}: the line at byte {self._offset}")
            step = record.get("step")
            if not isinstance(step, int):
                raise HeadroomError(DATA, f"[client] {self._path}: the line at byte {self._offset} "
                                    "names no step: the file is damaged there; copy the run again")
            self._offset += len(line)
            self._last = line
            if self._is_replaced and step < self._next_step:
                raise HeadroomError(REQUEST, f"[client] another run has taken the folder "
                                    f"{self._path.parent}: follow that one anew")
            if step >= self._next_step:
                self._next_step = step + 1
                steps.append(record)
        return steps

    def _opened(self) -> Optional[BinaryIO]:
        """The file; opened again if it was replaced."""
        try:
            if self._file is not None:
                if os.path.samestat(os.fstat(self._file.fileno()), self._path.stat()):
                    return self._file
                self._file.close()
                self._is_replaced = True
            self._file = self._path.open("rb")
        except FileNotFoundError:
            return None
        self._offset, self._last = 0, b""
        return self._file
