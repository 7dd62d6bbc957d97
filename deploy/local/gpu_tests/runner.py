"""Runs parts one after another within a common time limit.

Each part has its own time limit. Time that earlier parts did not use is added, so
a part never uses the time of a later one. The output of each part is in a
separate file.
"""
import dataclasses
import os
import signal
import subprocess
import time
import traceback
from typing import Callable, Optional


@dataclasses.dataclass
class Verdict:
    """The result of a step; it succeeded if `failures` is empty."""
    failures: list = dataclasses.field(default_factory=list)
    # Pairs of a test that was not run, and the reason.
    skipped: list = dataclasses.field(default_factory=list)
    # Dicts, each of which is a line of a table.
    figures: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Step:
    """One command, and the judge of its output: a function of (exit code, text)."""
    title: str
    words: list
    judge: Optional[Callable] = None
    environment: dict = dataclasses.field(default_factory=dict)
    why_not: str = ''  # if set, the step is skipped for this reason


@dataclasses.dataclass
class Part:
    name: str
    title: str
    seconds: float
    steps: list
    is_required: bool = False  # if this part fails, no other part runs


@dataclasses.dataclass
class Result:
    name: str
    title: str
    limit_seconds: float
    seconds: float = 0.
    state: str = 'passed'  # 'passed', 'failed' or 'not run'
    failures: list = dataclasses.field(default_factory=list)
    skipped: list = dataclasses.field(default_factory=list)
    figures: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)
    file: str = ''

    def add(self, verdict, title):
        self.failures += [f'{title}: {failure}' for failure in verdict.failures]
        self.skipped += verdict.skipped
        self.figures += [dict(figure) for figure in verdict.figures]
        self.notes += [f'{title}: {note}' for note in verdict.notes]


def limit_of(own_seconds, later_seconds, seconds_left):
    """The time limit of a part: its own seconds, and what earlier parts have left over."""
    return max(own_seconds, seconds_left - sum(later_seconds)) if seconds_left > 0 else 0.


def exit_code_alone(code, _text):
    return Verdict([] if code == 0 else [how_it_ended(code)])


def how_it_ended(code):
    if code is None:
        return 'was ended at its time limit'
    if code < 0:
        return f'was ended by {signal.Signals(-code).name}'
    return f'ended with {code}'


def run_command(words, environment, out, seconds):
    """Returns the exit code; None after the time limit. Ends the whole process group."""
    process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=out,
                               stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True)
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def run_part(part, limit, file, clock=time.monotonic):
    result = Result(part.name, part.title, round(limit, 1), file=file.name)
    started = clock()
    with open(file, 'w+b') as out:
        for step in part.steps:
            if step.why_not:
                result.skipped.append((step.title, step.why_not))
                continue
            left = limit - (clock() - started)
            out.write(f'\n===== {step.title}: {" ".join(str(word) for word in step.words)}\n'.encode())
            out.flush()
            if left <= 0:
                result.failures.append(f"{step.title}: not begun, the part's time was over")
                continue
            begin = out.seek(0, os.SEEK_END)
            try:
                code = run_command(step.words, step.environment, out, left)
            except OSError as error:
                result.failures.append(f'{step.title}: could not be started: {error}')
                continue
            out.seek(begin)
            text = out.read().decode(errors='replace')
            out.seek(0, os.SEEK_END)
            try:
                verdict = (step.judge or exit_code_alone)(code, text)
            except Exception:  # the output is not what the judge expects
                verdict = Verdict([how_it_ended(code), 'its output cannot be read: ' +
                                   traceback.format_exc(limit=1).splitlines()[-1]])
            result.add(verdict, step.title)
    result.seconds = round(clock() - started, 1)
    result.state = 'failed' if result.failures else 'passed'
    return result


def run_parts(parts, folder, total_seconds, say, clock=time.monotonic):
    results = []
    deadline = clock() + total_seconds
    stopped_by = None
    for index, part in enumerate(parts):
        file = folder / f'{index + 1:02}_{part.name}.txt'
        limit = limit_of(part.seconds, [later.seconds for later in parts[index + 1:]], deadline - clock())
        if stopped_by or limit <= 0:
            why = f'{stopped_by} failed, without which nothing else can run' if stopped_by else 'no time was left'
            results.append(Result(part.name, part.title, round(limit, 1), state='not run', failures=[why]))
            continue
        say(f'{part.title}: at most {limit:.0f} s')
        result = run_part(part, limit, file, clock)
        say(f'{part.title}: {result.state} after {result.seconds} s')
        results.append(result)
        if part.is_required and result.failures:
            stopped_by = part.title
    return results
