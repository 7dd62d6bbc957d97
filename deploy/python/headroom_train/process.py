"""A started `headroom train`: its output and its end."""

from __future__ import annotations

import collections
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any, Deque, Dict, List, Optional, TextIO, Tuple

from headroom_train.program import document_of, refusal

# The first line of a run that was accepted.
_HEADLINE = re.compile(r"headroom \S+ train: .*; results in (.+)$")
_LINES_KEPT = 1000


def _identity(file: pathlib.Path) -> Optional[Tuple[int, int]]:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


class TrainProcess:
    """The program, its output, and the one JSON document with which it ends."""

    def __init__(self, words: List[str], log_to: Optional[TextIO]) -> None:
        self._folder = pathlib.Path.cwd()
        self._log_to = log_to
        self._lines: Deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._path: Optional[pathlib.Path] = None
        self._older: Optional[Tuple[int, int]] = None
        # A file: the document of a run with many classes could fill a pipe and
        # block.
        self._document: IO[bytes] = tempfile.TemporaryFile()
        self.popen = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self._document,
                                      stderr=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read, daemon=True, name="headroom output")
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        with self.popen.stderr as stream:
            for raw in stream:
                line = raw.decode(errors="replace").rstrip("\n")
                found = _HEADLINE.match(line)
                if found and self._path is None:
                    path = self._folder / found[1]
                    self._older = _identity(path / "run.yaml")
                    self._path = path
                self._lines.append(line)
                if self._log_to is not None:
                    print(line, file=self._log_to, flush=True)

    @property
    def lines(self) -> List[str]:
        """The newest lines that it has printed for people."""
        return list(self._lines)

    @property
    def path(self) -> Optional[pathlib.Path]:
        """The run's folder; None until the program has named it."""
        return self._path

    def has_begun(self) -> bool:
        """Whether run.yaml was written, which happens after every possible refusal.

        A run that is resumed, or uses the folder of an older one, writes the
        file again.
        """
        if self._path is None:
            return False
        return _identity(self._path / "run.yaml") not in (None, self._older)

    def is_running(self) -> bool:
        return self.popen.poll() is None

    def interrupt(self) -> None:
        if self.is_running():
            self.popen.send_signal(signal.SIGINT)

    def wait(self, timeout: Optional[float]) -> Dict[str, Any]:
        """Returns the final document. Raises HeadroomError if the run failed.

        Raises subprocess.TimeoutExpired if it still runs.
        """
        exit_code = self.popen.wait(timeout)
        # Wait no longer: a process that the program has left behind may hold the pipe open.
        self._reader.join(5)
        self._document.seek(0)
        document = document_of(self._document.read().decode(errors="replace"))
        if exit_code != 0:
            raise refusal(exit_code, document, "\n".join(self.lines[-20:]))
        return document if isinstance(document, dict) else {}


def _words_of(process: pathlib.Path) -> List[bytes]:
    return (process / "cmdline").read_bytes().split(b"\0")


def supervisor_of(run: pathlib.Path) -> Optional[int]:
    """The process id of this machine's `headroom train` for the run in this folder; None if there is none."""
    if sys.platform != "linux":
        return None
    wanted = os.fsencode(run.resolve())
    processes = pathlib.Path("/proc")
    for process in processes.iterdir():
        try:
            if not process.name.isdigit() or process.stat().st_uid != os.geteuid():
                continue
            words = _words_of(process)
            if words[1:2] != [b"coordinator"] or b"--run-directory" not in words:
                continue
            folder = words[words.index(b"--run-directory") + 1]
            here = os.readlink(os.fsencode(process / "cwd"))
            if os.path.realpath(os.path.join(here, folder)) != wanted:
                continue
            status = (process / "stat").read_text(errors="replace")
            parent = status.rpartition(")")[2].split()[1]
            # If the supervisor was killed, another process has become the
            # parent.
            if _words_of(processes / parent)[1:2] == [b"train"]:
                return int(parent)
        except (OSError, IndexError):  # the process has ended in the meantime
            continue
    return None
