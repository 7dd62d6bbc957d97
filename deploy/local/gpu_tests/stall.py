"""Runs a training, stops the process of one rank in the middle for a while, and lets it go on.

    stall.py RUN_FOLDER LOCAL_RANK SECONDS -- COMMAND...
"""
import os
import pathlib
import signal
import subprocess
import sys
import time


def worker_of(local_rank, root):
    """The process id of the worker of that rank below process `root`; None where there is none."""
    parents, commands = {}, {}
    for folder in pathlib.Path('/proc').iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / 'cmdline').read_bytes().decode(errors='replace').split('\0')
            parents[int(folder.name)] = int((folder / 'stat').read_text().rpartition(')')[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        commands[int(folder.name)] = words
    for pid, words in commands.items():
        # An agent names its workers by their places on this machine.
        if '--worker-id' not in words or not words[words.index('--worker-id') + 1].endswith(f'-{local_rank}'):
            continue
        ancestor = pid
        while ancestor in parents and ancestor != root:
            ancestor = parents[ancestor]
        if ancestor == root:
            return pid
    return None


def main():
    folder, local_rank, seconds = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    program = subprocess.Popen(sys.argv[5:])
    log = folder / 'steps.jsonl'
    while program.poll() is None and not (log.exists() and log.read_text().count('\n') >= 2):
        time.sleep(.01)
    worker = None if program.poll() is not None else worker_of(local_rank, program.pid)
    if worker is None:
        print(f'there was no process of rank {local_rank} to stop', flush=True)
        program.wait()
        return 1
    os.kill(worker, signal.SIGSTOP)
    print(f'process {worker} of rank {local_rank} is stopped for {seconds} s', flush=True)
    time.sleep(seconds)
    try:
        os.kill(worker, signal.SIGCONT)
        print('and goes on', flush=True)
    except ProcessLookupError:
        print('and was ended meanwhile', flush=True)
    return program.wait()


if __name__ == '__main__':
    sys.exit(main())
