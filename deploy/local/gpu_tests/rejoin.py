"""Runs a training of two processes and kills the second repeatedly.

    rejoin.py RUN_FOLDER TIMES -- COMMAND...

Prints the resources of the first process as JSON: open files, threads, and bytes of
the card if there is NVML. Does so before the first kill, and after each kill when both
processes have made steps again. Interrupts the training at the end. The exit code is 1
if the processes did not rejoin TIMES times.
"""
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from stall import worker_of
from watch import Follower

STEPS_TOGETHER = 3
LOOKS = 5  # samples: a file may be open for a moment


class Card:
    """The first card's memory, from NVML; None if there is no NVML."""

    def __init__(self):
        try:
            self.nvml = ctypes.CDLL('libnvidia-ml.so.1')
            self.handle = ctypes.c_void_p()
            if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)):
                self.nvml = None
        except OSError:
            self.nvml = None

    def used_bytes(self):
        class Memory(ctypes.Structure):
            _fields_ = [('total', ctypes.c_ulonglong), ('free', ctypes.c_ulonglong), ('used', ctypes.c_ulonglong)]
        memory = Memory()
        if self.nvml is None or self.nvml.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)):
            return None
        return memory.used


def held_by(process):
    folder = pathlib.Path('/proc') / str(process)
    return {'files': len(list((folder / 'fd').iterdir())), 'threads': len(list((folder / 'task').iterdir()))}


def sample(process, card):
    looks = []
    for _ in range(LOOKS):
        looks.append({**held_by(process), 'device_bytes': card.used_bytes()})
        time.sleep(.02)
    return {key: None if looks[0][key] is None else min(look[key] for look in looks) for key in looks[0]}


def wait_for_steps_together(program, lines):
    """Waits for STEPS_TOGETHER steps of two ranks. Returns False if the program ends before."""
    together = 0
    while program.poll() is None:
        for line in lines.lines():
            try:
                ranks = len(json.loads(line)['memory'])
            except ValueError:  # the file was cut, and this is only a part of a line
                continue
            together = together + 1 if ranks == 2 else 0
        if together >= STEPS_TOGETHER:
            return True
        time.sleep(.01)
    return False


def main():
    folder, times = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    card = Card()
    program = subprocess.Popen(sys.argv[4:])
    lines = Follower(folder / 'steps.jsonl')
    survivor = None
    for rejoined in range(times + 1):
        begin = time.monotonic()
        if not wait_for_steps_together(program, lines):
            print(f'the program ended before both went on together for time {rejoined}', flush=True)
            return 1
        survivor = survivor or worker_of(0, program.pid)
        print(json.dumps({'rejoined': rejoined, 'seconds': round(time.monotonic() - begin, 2),
                          **sample(survivor, card)}), flush=True)
        if rejoined < times:
            victim = worker_of(1, program.pid)
            if victim is None:
                print(f'there was no second process to kill for time {rejoined + 1}', flush=True)
                program.send_signal(signal.SIGINT)
                program.wait()
                return 1
            os.kill(victim, signal.SIGKILL)
            lines.lines()  # skip the steps so far
    program.send_signal(signal.SIGINT)
    program.wait()
    return 0


if __name__ == '__main__':
    sys.exit(main())
