#!/usr/bin/env python3
"""Images per second of this trainer against plain PyTorch DDP, in one run.

Windows of the two programs alternate on the same machine: same network, loss,
batch, sizes and threads, synthetic input on both sides. Absolute figures are
noise on shared machines; the ratio of medians is the result.

    ddp_ratio.py --peer PEER.py --python PYTHON [--img 160 320] [--windows 5]
    ddp_ratio.py --model yolov8n --python PYTHON

--model is a letter of YOLOv5's sizes, or the name of a network whose head has
no anchors; place_peer.py trains the latter, and needs no --peer. PYTHON has
torch 2.x; PEER.py prints one JSON line with images_per_second per window. The
peer runs with and without --channels-last; the faster counts.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE_PEER = pathlib.Path(__file__).with_name('place_peer.py')


def headroom_rate(args, img):
    """The median over the steps of one window, without the warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(args.headroom), 'train', '--synthetic-input', '--cfg', args.cfg,
                   '--img', str(img), '--batch', str(args.batch * args.processes),
                   '--processes', str(args.processes), '--threads', str(args.threads),
                   '--max-steps', str(args.warmup + args.steps), '--project', folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = (pathlib.Path(folder) / 'exp' / 'steps.jsonl').read_text().splitlines()
    seconds = [json.loads(line)['seconds'] for line in lines[args.warmup:]]
    return args.batch * args.processes * len(seconds) / sum(seconds)


def peer_rate(args, img, channels_last):
    command = [args.python, str(args.peer), '--model', args.model, '--img', str(img), '--batch', str(args.batch),
               '--processes', str(args.processes), '--threads', str(args.threads),
               '--steps', str(args.steps), '--warmup', str(args.warmup), '--windows', '1']
    if channels_last:
        command.append('--channels-last')
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout.strip().splitlines()[-1])['images_per_second']


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--peer', type=pathlib.Path)
    parser.add_argument('--python', default=sys.executable)
    parser.add_argument('--headroom', type=pathlib.Path, default=ROOT / 'build' / 'bin' / 'headroom')
    parser.add_argument('--model', default='n')
    parser.add_argument('--img', type=int, nargs='+', default=[160, 320])
    for flag, value in (('batch', 16), ('processes', 2), ('threads', 1), ('steps', 20), ('warmup', 5), ('windows', 5)):
        parser.add_argument(f'--{flag}', type=int, default=value)
    args = parser.parse_args()
    is_letter = len(args.model) == 1
    args.cfg = 'yolov5' + args.model if is_letter else args.model
    if args.peer is None:
        if is_letter:
            parser.error(f'--model {args.model} needs --peer')
        args.peer = PLACE_PEER
    for img in args.img:
        rates = {'headroom': [], 'peer': [], 'peer channels-last': []}
        for window in range(args.windows):
            rates['headroom'].append(headroom_rate(args, img))
            rates['peer'].append(peer_rate(args, img, False))
            rates['peer channels-last'].append(peer_rate(args, img, True))
            print(f'# {img} px, window {window + 1}: ' +
                  ', '.join(f'{name} {values[-1]:.1f}' for name, values in rates.items()), file=sys.stderr, flush=True)
        medians = {name: statistics.median(values) for name, values in rates.items()}
        fastest_peer = max(medians['peer'], medians['peer channels-last'])
        print(json.dumps({'model': args.cfg, 'img': img, 'images_per_second': medians, 'ratio': medians['headroom'] / fastest_peer}),
              flush=True)


if __name__ == '__main__':
    main()
