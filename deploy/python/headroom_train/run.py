"""A run, started here or read from its folder."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, TextIO

from headroom_train.errors import INTERRUPTED, REQUEST, RESOURCE, HeadroomError
from headroom_train.files import StepReader, read_document, read_records, read_results
from headroom_train.process import TrainProcess, supervisor_of
from headroom_train.program import Flag, PathLike, Scalar, find_program, flag_words
from headroom_train.table import Record, Table

_POLL_SECONDS = 0.1


def _is_held(run: pathlib.Path) -> bool:
    """Whether a coordinator holds the log of the run in this folder."""
    try:
        import fcntl
    except ImportError:  # this system cannot train, so the folder is a copy of a run
        return False
    try:
        lock = os.open(run / "coordinator.log.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)


class Run:
    """The folder of a run, and its process if it was started here.

    A run continues after Python has ended; Run(path) then follows it again. Every call
    reads the files again.
    """

    def __init__(self, path: PathLike, *, program: Optional[PathLike] = None) -> None:
        self.path = pathlib.Path(path).absolute()
        self._program = program
        self._process: Optional[TrainProcess] = None
        self._is_stopping = False
        if not (self.path / "run.yaml").exists():
            raise HeadroomError(REQUEST, f"[client] {self.path} has no run.yaml: name the folder "
                                "of a run, for example runs/train/exp")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    # State.

    @property
    def state(self) -> str:
        """"running", "finished", "failed", or "killed" if the run has stopped without an end event."""
        if self._goes_on():
            return "running"
        return str(self._end().get("state", "killed"))

    @property
    def log(self) -> List[str]:
        """The newest lines that the program has printed; empty if it was not started here."""
        return self._process.lines if self._process is not None else []

    def _goes_on(self) -> bool:
        return (self._process is not None and self._process.is_running()) or _is_held(self.path)

    def _end(self) -> Record:
        """The event of the run's end; empty if the run has none."""
        events = self.events()
        return events[-1] if events and events[-1].get("event") == "run_over" else {}

    # Files.

    def follow(self, poll_seconds: float = _POLL_SECONDS) -> Iterator[Record]:
        """Yields each committed step from the first one on; ends with the run.

        Also ends if the run failed; `wait()` then raises the reason.
        """
        reader = StepReader(self.path / "steps.jsonl")
        try:
            while True:
                # Ask before reading the steps, so that no last step is missed.
                goes_on = self._goes_on()
                yield from reader.new_steps()
                if not goes_on:
                    return
                time.sleep(poll_seconds)
        finally:
            reader.close()

    def steps(self) -> Table:
        """The committed steps so far, from steps.jsonl."""
        return read_records(self.path / "steps.jsonl")

    def epochs(self) -> Table:
        """The epochs so far, with the columns of YOLOv5's results.csv."""
        return read_results(self.path / "results.csv")

    def events(self) -> Table:
        """The events, each with its reason, from events.jsonl."""
        return read_records(self.path / "events.jsonl")

    @property
    def summary(self) -> Dict[str, Any]:
        """The metrics of the best weights so far, and the run's time and memory."""
        return self._document("summary.json", "after the first epoch, and at the end")

    @property
    def plan(self) -> Dict[str, Any]:
        """The plan of the newest generation, with its predicted bytes."""
        return self._document("plan.json", "when the run begins")

    @property
    def best(self) -> pathlib.Path:
        """The file of the best weights."""
        return self.path / "weights" / "best.safetensors"

    def _document(self, name: str, when: str) -> Dict[str, Any]:
        document: Dict[str, Any] = read_document(self.path / name, when)
        return document

    # Control.

    def wait(self, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Waits for the end. Returns the summary, with `exit_code` and `reason`.

        Raises HeadroomError if the run failed, except when stop() ended it, and
        TimeoutError if the run has not ended after `timeout` seconds.
        """
        if self._process is not None:
            try:
                return self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise self._runs_on(timeout) from None
            except HeadroomError as error:
                if not (self._is_stopping and error.exit_code == INTERRUPTED):
                    raise
                return self._outcome(error.exit_code, error.text)
        limit = None if timeout is None else time.monotonic() + timeout
        while self._goes_on():
            if limit is not None and time.monotonic() > limit:
                raise self._runs_on(timeout)
            time.sleep(_POLL_SECONDS)
        end = self._end()
        exit_code = int(end.get("exit_code", RESOURCE))
        reason = str(end.get("reason", f"[client] the run in {self.path} was killed: no end is "
                                       "written; resume() goes on"))
        if exit_code != 0 and not (self._is_stopping and exit_code == INTERRUPTED):
            raise HeadroomError(exit_code, reason)
        return self._outcome(exit_code, reason)

    def _runs_on(self, timeout: Optional[float]) -> TimeoutError:
        return TimeoutError(f"the run in {self.path} goes on after {timeout:g} s")

    def _outcome(self, exit_code: int, reason: str) -> Dict[str, Any]:
        has_summary = (self.path / "summary.json").exists()
        return {**(self.summary if has_summary else {}), "exit_code": exit_code, "reason": reason,
                "run_directory": str(self.path)}

    def stop(self, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Ends the run at a committed step, as Ctrl-C does, and waits for its end.

        resume() continues the run. Nothing happens if the run has already ended.
        """
        self._is_stopping = True
        if self._process is not None:
            self._process.interrupt()
        elif self._goes_on():
            supervisor = supervisor_of(self.path)
            if supervisor is None:
                raise HeadroomError(REQUEST, f"[client] no process of this machine supervises the "
                                    f"run in {self.path}: stop it where it was started")
            os.kill(supervisor, signal.SIGINT)
        return self.wait(timeout)

    def resume(self, *, log_to: Optional[TextIO] = None, **flags: Flag) -> "Run":
        """Continues from the newest valid checkpoint, in the same folder. Returns the new Run."""
        return _start({"resume": str(self.path), **flags}, self._program, log_to)


def train(*, data: Flag = None, cfg: Flag = None, weights: Flag = None, img: Flag = None,
          batch: Flag = None, epochs: Flag = None, processes: Flag = None,
          set: Optional[Mapping[str, Scalar]] = None,  # named after the flag --set
          program: Optional[PathLike] = None, log_to: Optional[TextIO] = None,
          **flags: Flag) -> Run:
    """Starts a run. Returns it when the run has begun; raises HeadroomError if it is refused.

    Every flag of `headroom train` is a keyword: `bn_group=32`, `cos_lr=True`,
    `img=(320, 640)`, `layout={"data": 2}`, `set={"hyp.lr0": 0.01}`. `program` is the
    program's path; it is needed if the program is neither on PATH nor named by
    HEADROOM_PROGRAM. The program's messages go to `log_to` and to `Run.log`.
    """
    asked: Dict[str, Flag] = {"data": data, "cfg": cfg, "weights": weights, "img": img,
                              "batch": batch, "epochs": epochs, "processes": processes,
                              "set": set}
    return _start({**asked, **flags}, program, log_to)


def _start(flags: Mapping[str, Flag], program: Optional[PathLike],
           log_to: Optional[TextIO]) -> Run:
    for keyword in ("coordinator", "rendezvous"):
        if flags.get(keyword) is not None:
            raise HeadroomError(REQUEST, f"[client] {keyword}= is for agents of a run elsewhere: "
                                "start those with the program itself")
    process = TrainProcess([find_program(program), "train", *flag_words(flags), "--json"], log_to)
    while process.is_running() and not process.has_begun():
        time.sleep(_POLL_SECONDS / 2)
    if not process.has_begun():
        process.wait(None)
    if process.path is None:
        printed = "\n".join(process.lines)
        raise HeadroomError(1, f"[client] headroom train named no folder: {printed}")
    run = Run(process.path, program=program)
    run._process = process
    return run
