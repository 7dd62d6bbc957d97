#!/usr/bin/env python3
"""The cost of a run's page: bytes, memory, and training time.

    page_load.py [--readers 200] [--pairs 8] [--steps 25] [--history 100000]
                 [--headroom PROGRAM]

One run of two processes trains on synthetic images. Windows of its steps
without a reader alternate with windows in which --readers connections read the
page's events, and one more connection never reads the data that it is sent. Two
neighbouring windows give a ratio of step times; the result is the median of the
ratios. Then the run's steps are repeated until there are --history of them, and
the report of that folder is written.
"""
import argparse
import json
import pathlib
import re
import selectors
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Readers:
    """Connections that follow /events and discard the data."""

    def __init__(self, address, count):
        parts = urllib.parse.urlsplit(address)
        token = urllib.parse.parse_qs(parts.query)['token'][0]
        self.request = (f'GET /events HTTP/1.1\r\nHost: {parts.netloc}\r\n'
                        f'X-Headroom-Token: {token}\r\n\r\n').encode()
        self.place = (parts.hostname, parts.port)
        self.sockets = [self.connect() for _ in range(count)]
        self.silent = self.connect()  # never read
        self.received = 0
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def connect(self):
        connection = socket.create_connection(self.place)
        connection.sendall(self.request)
        return connection

    def read(self):
        with selectors.DefaultSelector() as waiting:
            for connection in self.sockets:
                waiting.register(connection, selectors.EVENT_READ)
            while not self.ends.is_set():
                for key, _ in waiting.select(0.2):
                    part = key.fileobj.recv(1 << 16)
                    if not part:
                        raise SystemExit('a reader was sent away')
                    self.received += len(part)

    def close(self):
        self.ends.set()
        self.thread.join()
        for connection in [*self.sockets, self.silent]:
            connection.close()


def resident_bytes(pid):
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    return int(re.search(r'VmRSS:\s+(\d+)', status)[1]) * 1024


def seconds_of(steps_file, first):
    """The seconds of each step, from step number `first` on."""
    lines = steps_file.read_text().splitlines()
    return [json.loads(line)['seconds'] for line in lines[first:]]


def wait_for_steps(steps_file, count):
    while not steps_file.exists() or steps_file.read_bytes().count(b'\n') < count:
        time.sleep(0.05)


def measure_readers(args, folder):
    steps = folder / 'exp/steps.jsonl'
    all_steps = args.warmup + 2 * args.pairs * (args.steps + 2)
    run = subprocess.Popen(
        [args.headroom, 'train', '--synthetic-input', '--cfg', 'yolov5n', '--img', '160', '--batch', '32',
         '--processes', '2', '--threads', '1', '--max-steps', str(all_steps + 1000), '--project', folder,
         '--page', '127.0.0.1:0'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = next(match[1] for match in (re.search(r'page: +(http\S+)', line) for line in run.stdout) if match)
        threading.Thread(target=run.stdout.read, daemon=True).start()  # so that the pipe never fills
        wait_for_steps(steps, args.warmup)
        ratios, memory = [], {False: [], True: []}
        for pair in range(args.pairs):
            window = {}
            for is_read in ((False, True) if pair % 2 == 0 else (True, False)):
                readers = Readers(address, args.readers) if is_read else None
                time.sleep(1)  # new readers get their first events meanwhile
                first = steps.read_bytes().count(b'\n') + 1
                wait_for_steps(steps, first + args.steps)
                window[is_read] = statistics.median(seconds_of(steps, first)[:args.steps])
                memory[is_read].append(resident_bytes(run.pid))
                if readers:
                    received = readers.received
                    readers.close()
                    if received < args.readers * 100:
                        raise SystemExit(f'readers got {received} bytes: nothing was measured')
            ratios.append(window[True] / window[False])
        print(f'{args.readers} readers, and one that never reads: '
              f'{statistics.median(ratios):.4f} times the time of a step without them '
              f'({len(ratios)} pairs: {" ".join(f"{ratio:.3f}" for ratio in ratios)})')
        print(f'memory of the program that serves: {max(memory[False]) / 2**20:.1f} MiB without readers, '
              f'{max(memory[True]) / 2**20:.1f} MiB with them, {memory[True][0] / 2**20:.1f} MiB the first time')
    finally:
        run.terminate()
        run.wait()


def measure_history(args, folder):
    steps = folder / 'exp/steps.jsonl'
    lines = [json.loads(line) for line in steps.read_text().splitlines()]
    with steps.open('w') as out:
        for step in range(args.history):
            out.write(json.dumps(dict(lines[step % len(lines)], step=step), separators=(',', ':')) + '\n')
    report = folder / 'report.html'
    begin = time.monotonic()
    subprocess.run([args.headroom, 'report', folder / 'exp', '--output', report], check=True, stdout=subprocess.DEVNULL)
    print(f'report of {args.history} steps ({steps.stat().st_size / 2**20:.0f} MiB of steps.jsonl): '
          f'{report.stat().st_size / 1000:.0f} kB after {time.monotonic() - begin:.1f} s')
    page = sum((ROOT / 'deploy/page' / name).stat().st_size
               for name in ('page.html', 'page.css', 'record.js', 'charts.js', 'page.js', 'sections.js'))
    print(f'page: {page / 1000:.0f} kB')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--headroom', type=pathlib.Path, default=ROOT / 'build/bin/headroom')
    for flag, value in (('readers', 200), ('pairs', 8), ('steps', 25), ('warmup', 10), ('history', 100_000)):
        parser.add_argument(f'--{flag}', type=int, default=value)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure_readers(args, pathlib.Path(folder))
        measure_history(args, pathlib.Path(folder))


if __name__ == '__main__':
    main()
