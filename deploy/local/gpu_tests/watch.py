"""Runs a training and measures how long it went without a committed step.

    watch.py RUN_FOLDER -- COMMAND...

The last line is JSON: the longest time between two steps in seconds, and for each
fault among the run's events the seconds until the next step.
"""
import json
import pathlib
import subprocess
import sys
import time

# Events after which a step is repeated.
FAULTS = ('fault', 'out_of_memory', 'loss_of_process', 'card_failure')


class Follower:
    """Reads complete new lines of a file, which may not exist yet."""

    def __init__(self, file):
        self.file, self.place = file, 0

    def lines(self):
        try:
            with open(self.file, 'rb') as stream:
                stream.seek(self.place)
                text = stream.read()
        except FileNotFoundError:
            return []
        whole = text[:text.rfind(b'\n') + 1]
        self.place += len(whole)
        return whole.decode(errors='replace').splitlines()


def times_without_a_step(steps, faults):
    """The figures, from the times of committed steps and the (time, kind) of faults."""
    gaps = [later - earlier for earlier, later in zip(steps, steps[1:])]
    rows = []
    for at, kind in faults:
        later = [step for step in steps if step >= at]
        rows.append({'fault': kind, 'step_after_s': round(later[0] - at, 3) if later else None})
    return {'longest_without_a_step_s': round(max(gaps), 3) if gaps else None, 'faults': rows}


def main():
    folder = pathlib.Path(sys.argv[1])
    program = subprocess.Popen(sys.argv[3:])
    step_lines, event_lines = Follower(folder / 'steps.jsonl'), Follower(folder / 'events.jsonl')
    steps, faults = [], []
    ended = False
    while not ended:
        ended = program.poll() is not None  # the last round reads the last lines
        now = time.monotonic()
        for line in event_lines.lines():
            kind = json.loads(line)['event']
            if kind in FAULTS:
                faults.append((now, kind))
        steps += [now] * len(step_lines.lines())
        time.sleep(.01)
    print(json.dumps(times_without_a_step(steps, faults)), flush=True)
    return program.returncode


if __name__ == '__main__':
    sys.exit(main())
