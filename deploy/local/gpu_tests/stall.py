"""Runs a training, pauses the process of one rank for some time, and lets it continue.

    stall.py RUN_FOLDER LOCAL_RANK SECONDS[/EVERY] -- COMMAND...

EVERY: pauses it repeatedly to the end, with this many seconds in between, like a
peer that is always a little late.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time


def worker_of(local_rank, root):
    """The process id of the worker of that rank below process `root`; None if there is none."""
    parents, commands = {}, {}
    for folder in pathlib.Path('/proc').iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / 'cmdline').read_bytes().decode(errors='replace').split('\0')
            parents[int(folder.name)] = int((folder / 'stat').read_text().rpartition(')')[2].split()[1])
        except OSError:  # it has ended in the meantime
            continue
        commands[int(folder.name)] = words
    for pid, words in commands.items():
        # A worker's name ends with its index on the machine; a successor's adds
        # a dot and a number.
        name = words[words.index('--worker-id') + 1] if '--worker-id' in words else ''
        if not re.search(rf'-{local_rank}(\.\d+)?$', name):
            continue
        ancestor = pid
        while ancestor in parents and ancestor != root:
            ancestor = parents[ancestor]
        if ancestor == root:
            return pid
    return None


def stop_for(worker, seconds):
    """Returns False if the process has ended."""
    try:
        os.kill(worker, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(worker, signal.SIGCONT)
        return True
    except ProcessLookupError:
        return False


def main():
    folder, local_rank = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    seconds, _, every = sys.argv[3].partition('/')
    program = subprocess.Popen(sys.argv[5:])
    log = folder / 'steps.jsonl'
    while program.poll() is None and not (log.exists() and log.read_text().count('\n') >= 2):
        time.sleep(.01)
    worker = None if program.poll() is not None else worker_of(local_rank, program.pid)
    if worker is None:
        print(f'there was no process of rank {local_rank} to stop', flush=True)
        program.wait()
        return 1
    print(f'process {worker} of rank {local_rank} is stopped for {seconds} s', flush=True)
    stops = 0
    while stop_for(worker, float(seconds)):
        stops += 1
        if not every or program.poll() is not None:
            break
        time.sleep(float(every))
    print(f'and went on after {stops} times' if stops else 'and was ended meanwhile', flush=True)
    return program.wait()


if __name__ == '__main__':
    sys.exit(main())
