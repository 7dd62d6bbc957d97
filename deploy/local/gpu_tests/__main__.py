"""Runs the tests that need a card, on a machine that has a card and nothing of this project.

    gpu_tests.sh pack [--out FILE] [--build FOLDER] [--peer FILE]
        here, after a build: makes one archive for the machine with the card
    gpu_tests.sh run [--compile | --sanitize] [--only PART]... [--results FOLDER] [--seconds N]
        there, unpacked: takes at most ten minutes, or N seconds, which are divided among
        the parts; ends with 1 if anything failed
    gpu_tests.sh run --parts new
        only the parts about several ranks (rank_parts.py), six minutes; all: every part
    gpu_tests.sh run --without-card
        anywhere: the same parts on the test device, to test the kit itself

LibTorch 2.11.0 is searched in HEADROOM_LIBTORCH, else in Python's torch package.
HEADROOM_PYTHON is the Python with torch, for the PyTorch peer. HEADROOM_DATA is a
data.yaml of photographs for the loader; without it a data set is drawn.
--compile runs only the peer with torch.compile and CUDA graphs, --sanitize only
the kernels under compute-sanitizer.
"""
import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pack
import parts
import runner
import summary

def say(text):
    print(f'gpu_tests.sh: {text}', file=sys.stderr, flush=True)


def find_libtorch(python):
    given = os.environ.get('HEADROOM_LIBTORCH')
    if not given:
        where = 'import importlib.util as u, pathlib as p; s = u.find_spec("torch"); print(s and p.Path(s.origin).parents[1])'
        asked = subprocess.run([python, '-c', where], capture_output=True, text=True)
        given = asked.stdout.strip() if asked.returncode == 0 else ''
    if not given or not (pathlib.Path(given) / 'torch/lib/libtorch_cpu.so').exists():
        raise SystemExit(f"error: HEADROOM_LIBTORCH='{given}' holds no torch/lib/libtorch_cpu.so: name the folder that "
                         'holds torch/ 2.11.0 (of a pip installation its site-packages)')
    return pathlib.Path(given)


def can_import_torch(python, environment):
    try:
        return subprocess.run([python, '-c', 'import torch'], capture_output=True, timeout=60,
                              env={**os.environ, **environment}).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def kit_of(args):
    root = pathlib.Path(__file__).resolve().parents[1]
    if not (root / 'bin/headroom').exists():
        raise SystemExit(f'error: {root} is no unpacked kit: pack, and run what the archive holds')
    python = os.environ.get('HEADROOM_PYTHON') or shutil.which('python3') or sys.executable
    results = (args.results or root / f'results-{time.strftime("%Y%m%d-%H%M%S")}').resolve()
    results.mkdir(parents=True, exist_ok=True)
    kit = parts.Kit(root, find_libtorch(python), results, has_card=not args.without_card, python=python)
    kit.python_has_torch = can_import_torch(python, {})
    return kit


def run(args):
    started = time.time()
    kit = kit_of(args)
    os.environ.update(kit.environment())
    call = 'sanitize' if args.sanitize else 'compile' if args.compile else ''
    chosen = parts.parts_of(kit, call, args.only, args.parts)
    usual = sum(part.seconds for part in chosen) if call else parts.seconds_of(args.parts)
    seconds = args.seconds or usual
    for part in chosen:
        part.seconds *= seconds / usual
    results = runner.run_parts(chosen, kit.results, seconds, say)
    about = {'device': 'a card' if kit.has_card else 'the test device, which is no hardware',
             'libtorch': str(kit.libtorch), 'began': time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(started)),
             'whole_seconds': round(time.time() - started, 1)}
    summary.write(results, about, kit.results)
    print((kit.results / 'summary.md').read_text())
    say(f'{kit.results}/summary.md, summary.json and the output of each part')
    return 1 if any(result.failures for result in results) else 0


def main():
    parser = argparse.ArgumentParser(prog='gpu_tests.sh', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)
    packing = commands.add_parser('pack')
    for flag in ('--out', '--build', '--peer'):
        packing.add_argument(flag, type=pathlib.Path)
    packing.add_argument('--without-card', action='store_true', help='pack without the CUDA plugin where there is none')
    running = commands.add_parser('run')
    running.add_argument('--without-card', action='store_true')
    running.add_argument('--only', action='append', default=[], choices=[row[0] for row in parts.GROUPS['all']])
    running.add_argument('--parts', default='old', choices=list(parts.GROUPS))
    running.add_argument('--results', type=pathlib.Path)
    running.add_argument('--seconds', type=float)
    second = running.add_mutually_exclusive_group()
    second.add_argument('--sanitize', action='store_true')
    second.add_argument('--compile', action='store_true')
    args = parser.parse_args()
    # Ending this program must also end its children, which have their own
    # sessions.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.command == 'pack':
        pack.pack(args, say)
        return 0
    return run(args)


if __name__ == '__main__':
    sys.exit(main())
