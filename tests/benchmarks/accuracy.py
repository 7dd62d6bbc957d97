#!/usr/bin/env python3
"""Accuracy over many seeds, with its spread, as tables.

    accuracy.py [shapes] [bccd] [aerial] [--cfg yolov5n] [--seeds 8]
                [--first-seed 0] [--folder runs/accuracy] [--bccd DATA.yaml]
                [--weights FILE] [--aerial FOLDER] [--headroom PROGRAM]
                [-- FLAGS OF TRAIN]

  shapes  the demonstration of deploy/local/train.sh, with that script's flags
  bccd    from scratch on --bccd, 320 px, 60 epochs
  aerial  15 epochs from --weights on 640 px tiles of --aerial/video_1080p,
          validated on the tiles of --aerial/large_4000x2250, 320 px

Without names, the script makes all three. All train the model --cfg. A run has
the folder FOLDER/NAME/seedN, and FOLDER/NAME-MODEL/seedN for a model other than
yolov5n. A complete run is only read, and a stopped run is resumed, so the same
command can be given again, also with more seeds. Flags behind -- are passed to
every training, for example --threads 1. A training takes minutes to an hour on
one core.

A line of a table has the results of one seed: the best epoch (by fitness), the
last epoch, each class's mAP50 at the best epoch, and the number of epochs among
the last 20 whose mAP50 was more than 0.1 below that of the epoch before. The
last lines have the mean, the deviation and the worst value.
"""
import argparse
import csv
import json
import pathlib
import re
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAST_EPOCHS = 20
USUAL_MODEL = 'yolov5n'  # its folders have no model in their names
FALL = 0.1


def demonstration(program):
    """The last command of deploy/local/train.sh: `headroom-shapes` or `headroom train`."""
    script = (ROOT / 'deploy/local/train.sh').read_text().replace('\\\n', ' ')
    lines = [line for line in script.splitlines() if f'build/bin/{program} ' in line]
    words = shlex.split(lines[-1])
    return words[[word.endswith('/' + program) for word in words].index(True) + 1:]


def without(words, *flags):
    """Returns the arguments without these flags and their values."""
    kept = list(words)
    for flag in flags:
        if flag in kept:
            at = kept.index(flag)
            del kept[at:at + 2]
    return kept


def run(words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f'{shlex.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}')


def shapes_flags(args):
    data = args.folder / 'shapes/data/data.yaml'
    if not data.exists():
        run([args.headroom.parent / 'headroom-shapes', data.parent, *demonstration('headroom-shapes')[1:]])
    words = demonstration('headroom')
    return [*without(words[words.index('train') + 1:], '--data', '--cfg', '--seed', '--name'),
            '--data', data, '--cfg', args.cfg]


def bccd_flags(args):
    return ['--data', args.bccd, '--cfg', args.cfg, '--img', 320, '--batch', 16, '--epochs', 60]


def aerial_flags(args):
    tiles = args.folder / 'aerial/tiles'
    if not (tiles / 'data.yaml').exists():
        names = (args.aerial / 'classes.names').read_text().split()
        whole = args.folder / 'aerial/whole.yaml'
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(json.dumps({  # JSON is YAML
            'train': str(args.aerial.resolve() / 'video_1080p'),
            'val': str(args.aerial.resolve() / 'large_4000x2250'),
            'names': names,
        }))
        run([args.headroom, 'tile', '--data', whole, '--output', tiles, '--size', 640])
    return ['--data', tiles / 'data.yaml', '--cfg', args.cfg, '--weights', args.weights,
            '--img', 320, '--batch', 16, '--epochs', 15]


TRAININGS = {'shapes': shapes_flags, 'bccd': bccd_flags, 'aerial': aerial_flags}


def epochs_of(folder):
    """The lines of results.csv, as numbers by column."""
    if not (folder / 'results.csv').exists():
        return []
    with open(folder / 'results.csv', newline='') as file:
        return [{key.strip(): float(value) for key, value in line.items()} for line in csv.DictReader(file)]


def is_complete(folder):
    if not (folder / 'run.yaml').exists():
        return False
    wanted = re.search(r'^epochs: (\d+)$', (folder / 'run.yaml').read_text(), re.MULTILINE)
    return len(epochs_of(folder)) == int(wanted.group(1))


def train(args, name, flags, seed):
    """Trains the run unless it is complete, and returns its folder."""
    model = '' if args.cfg == USUAL_MODEL else '-' + pathlib.Path(args.cfg).stem
    folder = args.folder / (name + model) / f'seed{seed}'
    if is_complete(folder):
        return folder
    if any(folder.glob('checkpoints/*')):
        words = ['--resume', folder]
    else:
        words = [*flags, *args.train_flags, '--seed', seed, '--noplots', '--exist-ok',
                 '--project', folder.parent, '--name', folder.name]
    print(f'# {name}, seed {seed}', file=sys.stderr, flush=True)
    run([args.headroom, 'train', *words])
    return folder


def figures(folder):
    """One line of the table: heading -> number."""
    epochs = epochs_of(folder)
    curve = [line['metrics/mAP_0.5'] for line in epochs]
    means = [line['metrics/mAP_0.5:0.95'] for line in epochs]
    best = max(range(len(curve)), key=lambda i: (0.1 * curve[i] + 0.9 * means[i], i))
    first = max(len(curve) - LAST_EPOCHS, 1)
    falls = sum(curve[i] < curve[i - 1] - FALL for i in range(first, len(curve)))
    line = {'best mAP50': curve[best], 'best mAP': means[best], 'last mAP50': curve[-1], 'last mAP': means[-1]}
    for entry in json.loads((folder / 'summary.json').read_text())['per_class']:
        line[f'{entry["name"]} mAP50'] = entry['map50']
    return line | {f'falls in the last {len(curve) - first}': falls}


def table(lines):
    """Markdown: a line per seed, then the summary."""
    headings = list(next(iter(lines.values())))

    def row(name, values):
        cells = [f'{value:.3f}' if isinstance(value, float) else str(value) for value in values]
        return f'| {name} | {" | ".join(cells)} |'

    columns = [[line[heading] for line in lines.values()] for heading in headings]
    out = [f'| seed | {" | ".join(headings)} |', '|---' * (len(headings) + 1) + '|']
    out += [row(seed, line.values()) for seed, line in lines.items()]
    out.append(row('mean', [float(statistics.mean(column)) for column in columns]))
    if len(lines) > 1:
        out.append(row('deviation', [float(statistics.stdev(column)) for column in columns]))
    out.append(row('worst', [*map(min, columns[:-1]), max(columns[-1])]))
    return '\n'.join(out)


def main():
    words, train_flags = sys.argv[1:], []
    if '--' in words:
        at = words.index('--')
        words, train_flags = words[:at], words[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('trainings', nargs='*', metavar='NAME')
    parser.add_argument('--cfg', default=USUAL_MODEL)
    parser.add_argument('--seeds', type=int, default=8)
    parser.add_argument('--first-seed', type=int, default=0)
    parser.add_argument('--folder', type=pathlib.Path, default=ROOT / 'runs/accuracy')
    parser.add_argument('--bccd', type=pathlib.Path)
    parser.add_argument('--weights', type=pathlib.Path)
    parser.add_argument('--aerial', type=pathlib.Path)
    parser.add_argument('--headroom', type=pathlib.Path, default=ROOT / 'build/bin/headroom')
    args = parser.parse_intermixed_args(words)
    args.train_flags = train_flags
    needs = {'bccd': ['bccd'], 'aerial': ['aerial', 'weights']}
    for name in args.trainings or TRAININGS:
        if name not in TRAININGS:
            parser.error(f"'{name}' is none of {', '.join(TRAININGS)}")
        for flag in needs.get(name, []):
            if getattr(args, flag) is None:
                parser.error(f'{name} needs --{flag}')
    for name in args.trainings or TRAININGS:
        flags = TRAININGS[name](args)
        lines = {}
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            lines[seed] = figures(train(args, name, flags, seed))
        print(f'{name}: headroom train {shlex.join(map(str, flags + args.train_flags))}\n\n{table(lines)}\n', flush=True)


if __name__ == '__main__':
    main()
