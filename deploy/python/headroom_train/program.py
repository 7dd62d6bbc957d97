"""The program `headroom`: its path, its calls and its answers."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Union

from headroom_train.errors import REQUEST, RESOURCE, HeadroomError

PathLike = Union[str, "os.PathLike[str]"]
Scalar = Union[bool, int, float, str, "os.PathLike[str]"]
Flag = Union[None, Scalar, Sequence[Scalar], Mapping[str, Scalar]]

# A line about a file that export has written.
_EXPORTED = re.compile(r"^(.+?): (?:ONNX|TorchScript|safetensors|state dict of PyTorch), ", re.MULTILINE)

# What its help begins with.
_FIRST_LINE = re.compile(rb"headroom \S+: trains YOLO-family detectors")

# Flags that change the form of the output, or that this module sets.
_NOT_TAKEN = ("help", "version", "json")


def last_line(printed: bytes) -> str:
    """The last line with text; "" if there is none."""
    lines = printed.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


@functools.lru_cache(maxsize=None)
def _is_headroom(program: str, _changed_at: int) -> bool:
    """Whether this is the trainer: other packages have a program of that name.

    Raises HeadroomError, which is not cached, if the program does not work.
    """
    try:
        done = subprocess.run([program, "--help"], stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20)
        if done.returncode == 0:
            return _FIRST_LINE.match(done.stdout) is not None
        why = last_line(done.stderr) or last_line(done.stdout) or "it printed nothing"
        why = f"exit code {done.returncode}: {why}"
    except OSError as error:
        why = str(error)
    except subprocess.TimeoutExpired as error:
        why = f"no answer within 20 seconds: {last_line(error.stderr or b'') or 'it printed nothing'}"
    raise HeadroomError(RESOURCE, f"[client] {program} --help does not work ({why}): mend it, or "
                        "name another one with program=..., or in the environment as "
                        "HEADROOM_PROGRAM")


def find_program(program: Optional[PathLike] = None) -> str:
    """The program's path: the argument, else HEADROOM_PROGRAM, else the one on PATH.

    If none of these works, the program in this environment's folder of scripts is used,
    because the environment may not be activated. Other programs with this name, and
    programs that do not work, are skipped; if no other is found, raises HeadroomError.
    """
    named = os.fspath(program) if program is not None else os.environ.get("HEADROOM_PROGRAM", "")
    found = [shutil.which(named or "headroom")]
    if not named:
        found.append(shutil.which("headroom", path=sysconfig.get_path("scripts")))
    others = [os.path.abspath(path) for path in found if path is not None]
    broken: Optional[HeadroomError] = None
    for path in others:
        try:
            if _is_headroom(path, os.stat(path).st_mtime_ns):
                return path
        except HeadroomError as error:
            broken = broken or error
    if broken is not None:
        raise broken
    if others:
        raise HeadroomError(REQUEST, f"[client] {others[0]} is not the trainer headroom, but "
                            "another program of that name: name the trainer with program=..., or "
                            "in the environment as HEADROOM_PROGRAM")
    if named:
        raise HeadroomError(REQUEST, f"[client] {named} is no program that can be started: name "
                            "headroom by its path, as in build/bin/headroom")
    raise HeadroomError(REQUEST, "[client] there is no headroom on PATH: name it with "
                        "program=..., or in the environment as HEADROOM_PROGRAM")


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else os.fspath(value) if isinstance(
        value, os.PathLike) else repr(value)


def flag_words(flags: Mapping[str, Flag]) -> List[str]:
    """Converts keywords to the arguments of a command line.

    `bn_group=32` becomes `--bn-group 32`. True gives the flag without a value; None and
    False leave the flag out. A list gives several words. `set={"hyp.lr0": 0.01}` becomes
    `--set hyp.lr0=0.01`; another mapping becomes one word: `layout={"data": 2}` gives
    `--layout data=2`, with commas between several pairs.
    """
    words: List[str] = []
    for keyword, value in flags.items():
        name = "--" + keyword.replace("_", "-")
        if keyword in _NOT_TAKEN:
            raise HeadroomError(REQUEST, f"[client] {keyword}= is not for the caller: leave it out")
        if value is None or value is False:
            continue
        if value is True:
            words.append(name)
        elif isinstance(value, Mapping):
            pairs = [f"{key}={_text(part)}" for key, part in value.items()]
            if keyword == "set":
                words += [word for pair in pairs for word in (name, pair)]
            elif pairs:
                words += [name, ",".join(pairs)]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            if value:
                words += [name, *map(_text, value)]
        else:
            words += [name, _text(value)]
    return words


def document_of(text: str) -> Any:
    """The JSON document that the program printed; None if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def refusal(exit_code: int, document: Any, printed: str) -> HeadroomError:
    """The error for a program that ended with `exit_code`."""
    reason = document.get("reason") if isinstance(document, dict) else None
    text = reason if isinstance(reason, str) and reason else printed.strip()
    if exit_code < 0:  # ended by a signal, so there is no message
        text = f"[client] headroom was killed by signal {-exit_code}. {text}".rstrip()
        exit_code = RESOURCE
    return HeadroomError(exit_code, text or f"[client] headroom ended with exit code {exit_code}")


def call(command: str, words: Sequence[str], program: Optional[PathLike]) -> str:
    """Runs the command and returns its standard output. Raises HeadroomError if it fails."""
    done = subprocess.run([find_program(program), command, *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    out = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        raise refusal(done.returncode, document_of(out), done.stderr.decode(errors="replace"))
    return out


def call_json(command: str, words: Sequence[str], program: Optional[PathLike]) -> Any:
    out = call(command, [*words, "--json"], program)
    document = document_of(out)
    if document is None:
        raise HeadroomError(1, f"[client] headroom {command} --json printed no JSON: {out[:200]}")
    return document


class Written(NamedTuple):
    """The output of a command, and the files or the folder that it has written."""

    text: str
    paths: List[pathlib.Path]


def plan(*, program: Optional[PathLike] = None, **flags: Flag) -> Any:
    """The plan that train would use with these flags, and the reason; starts no training.

    With `sweep=["img=320,640", "batch=8..64"]` a table of plans, as `cells`.
    """
    return call_json("plan", flag_words(flags), program)


def val(*, data: Flag = None, weights: Flag = None, program: Optional[PathLike] = None,
        **flags: Flag) -> Any:
    """Evaluates weights on a data set: `map50`, `map`, `precision`, `recall` and more."""
    return call_json("val", flag_words({"data": data, "weights": weights, **flags}), program)


def verify(*, data: Flag, program: Optional[PathLike] = None, **flags: Flag) -> Any:
    """The faults of a data set, and how training handles them."""
    return call_json("verify", flag_words({"data": data, **flags}), program)


def detect(*, weights: Flag, source: Flag, program: Optional[PathLike] = None,
           **flags: Flag) -> Written:
    """Detects objects in images or videos; `paths` is the folder of results."""
    out = call("detect", flag_words({"weights": weights, "source": source, **flags}), program)
    _, found, folder = out.rstrip("\n").rpartition("; results in ")
    return Written(out, [pathlib.Path(folder)] if found else [])


def export(*, weights: Flag, include: Flag = None, program: Optional[PathLike] = None,
           **flags: Flag) -> Written:
    """Writes weights as ONNX, TorchScript, safetensors or .pt; `paths` are the files."""
    out = call("export", flag_words({"weights": weights, "include": include, **flags}), program)
    return Written(out, [pathlib.Path(line[1]) for line in _EXPORTED.finditer(out)])
