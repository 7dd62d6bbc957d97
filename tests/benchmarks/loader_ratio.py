#!/usr/bin/env python3
"""Mosaic samples per second and core: this trainer's loader against OpenCV from Python.

Both do the same work: they read four images, decode them, fit them to the size,
make a mosaic, warp it, change hue, saturation and brightness, flip it, and move
the boxes in the same way. The pixels are uint8. Each loader has one thread.
Windows of the two alternate, and every window is a new process that first reads
one epoch to warm up. Both are measured in two ways: with an image read and
decoded whenever it is needed, and with decoded images kept (this trainer's
default, in bounded memory). The results are the ratios of the medians to the
Python loader that keeps nothing, as most loaders do, and to the one that keeps
all images.

    loader_ratio.py --data DATA.yaml --python PYTHON [--img 640] [--samples 400]

PYTHON has cv2, numpy and yaml; the peer is this file, started with --peer.
"""
import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HSV = (0.015, 0.7, 0.4)
TRANSLATE, SCALE, FLIP = 0.1, 0.5, 0.5


class Peer:
    """A mosaic loader as a user would write it with OpenCV and numpy."""

    def __init__(self, data, size, keeps):
        import cv2
        import numpy
        import yaml
        cv2.setNumThreads(0)
        self.cv2, self.np, self.size, self.keeps, self.kept = cv2, numpy, size, keeps, {}
        config = yaml.safe_load(data.read_text())
        folder = data.parent / (config.get('path') or '') / config['train']
        if folder.is_dir():
            self.files = sorted(str(file) for file in folder.iterdir())
        else:
            self.files = [str(folder.parent / line) for line in folder.read_text().split()]
        self.labels = [self.labels_of(file) for file in self.files]

    def labels_of(self, file):
        path = os.path.splitext(file.replace('/images/', '/labels/'))[0] + '.txt'
        rows = [[float(value) for value in line.split()[:5]] for line in open(path) if line.strip()]
        return self.np.array(rows, self.np.float32).reshape(-1, 5)

    def image(self, index):
        if index in self.kept:
            return self.kept[index]
        image = self.cv2.imread(self.files[index])
        height, width = image.shape[:2]
        ratio = self.size / max(height, width)
        if ratio != 1:
            way = self.cv2.INTER_LINEAR if ratio > 1 else self.cv2.INTER_AREA
            image = self.cv2.resize(image, (math.ceil(width * ratio), math.ceil(height * ratio)), interpolation=way)
        if self.keeps:
            self.kept[index] = image
        return image

    def mosaic(self, index):
        np, size = self.np, self.size
        x_centre, y_centre = (int(random.uniform(size / 2, 3 * size / 2)) for _ in range(2))
        indices = [index, *random.choices(range(len(self.files)), k=3)]
        random.shuffle(indices)
        canvas = np.full((2 * size, 2 * size, 3), 114, np.uint8)
        boxes = []
        for quarter, other in enumerate(indices):
            image = self.image(other)
            height, width = image.shape[:2]
            left, top = quarter % 2 == 0, quarter < 2
            x1 = max(x_centre - width, 0) if left else x_centre
            y1 = max(y_centre - height, 0) if top else y_centre
            x2 = x_centre if left else min(x_centre + width, 2 * size)
            y2 = y_centre if top else min(y_centre + height, 2 * size)
            x0 = width - (x2 - x1) if left else 0
            y0 = height - (y2 - y1) if top else 0
            canvas[y1:y2, x1:x2] = image[y0:y0 + y2 - y1, x0:x0 + x2 - x1]
            found = self.labels[other].copy()
            centre, half = found[:, 1:3] * (width, height), found[:, 3:5] * (width, height) / 2
            found[:, 1:3] = centre - half + (x1 - x0, y1 - y0)
            found[:, 3:5] = centre + half + (x1 - x0, y1 - y0)
            boxes.append(found)
        boxes = np.concatenate(boxes)
        boxes[:, 1:] = boxes[:, 1:].clip(0, 2 * size)
        return canvas, boxes

    def warp(self, canvas, boxes):
        np, size = self.np, self.size
        gain = random.uniform(1 - SCALE, 1 + SCALE)
        shift = [random.uniform(0.5 - TRANSLATE, 0.5 + TRANSLATE) * size - gain * size for _ in range(2)]
        matrix = np.array([[gain, 0, shift[0]], [0, gain, shift[1]]])
        image = self.cv2.warpAffine(canvas, matrix, dsize=(size, size), borderValue=(114, 114, 114))
        moved = boxes.copy()
        moved[:, 1:] = (boxes[:, 1:] * gain + (shift * 2)).clip(0, size)
        before = (boxes[:, 3:5] - boxes[:, 1:3]) * gain
        after = moved[:, 3:5] - moved[:, 1:3]
        aspect = np.maximum(after[:, 0] / (after[:, 1] + 1e-16), after[:, 1] / (after[:, 0] + 1e-16))
        kept = (after > 2).all(1) & (after.prod(1) / (before.prod(1) + 1e-16) > 0.1) & (aspect < 100)
        return image, moved[kept]

    def jitter(self, image):
        np, cv2 = self.np, self.cv2
        gains = np.random.uniform(-1, 1, 3) * HSV + 1
        steps = np.arange(256, dtype=gains.dtype)
        tables = ((steps * gains[0] % 180).astype(np.uint8), (steps * gains[1]).clip(0, 255).astype(np.uint8),
                  (steps * gains[2]).clip(0, 255).astype(np.uint8))
        parts = cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2HSV))
        changed = cv2.merge([cv2.LUT(part, table) for part, table in zip(parts, tables)])
        cv2.cvtColor(changed, cv2.COLOR_HSV2BGR, dst=image)

    def sample(self, index):
        image, boxes = self.warp(*self.mosaic(index))
        self.jitter(image)
        if random.random() < FLIP:
            image = self.np.fliplr(image)
            boxes[:, [1, 3]] = self.size - boxes[:, [3, 1]]
        return self.np.ascontiguousarray(image.transpose(2, 0, 1)[::-1]), boxes

    def rate(self, samples):
        order = list(range(len(self.files)))
        random.shuffle(order)
        for index in order if self.keeps else order[:50]:
            self.sample(index)
        begin = time.perf_counter()
        for i in range(samples):
            self.sample(order[i % len(order)])
        return samples / (time.perf_counter() - begin)


def rate_of(command):
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout.strip().splitlines()[-1])['samples_per_second']


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--data', type=pathlib.Path, required=True)
    parser.add_argument('--python', default=sys.executable)
    parser.add_argument('--loader', type=pathlib.Path, default=ROOT / 'build' / 'bin' / 'benchmark_loader')
    for flag, value in (('img', 640), ('samples', 400), ('windows', 5)):
        parser.add_argument(f'--{flag}', type=int, default=value)
    parser.add_argument('--peer', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--keep', action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        print(json.dumps({'samples_per_second': Peer(args.data, args.img, args.keep).rate(args.samples)}))
        return
    shared = ['--data', str(args.data), '--img', str(args.img), '--samples', str(args.samples)]
    peer = [args.python, __file__, '--peer', *shared]
    own = [str(args.loader), *shared]
    commands = {'headroom': own, 'headroom, keeping nothing': [*own, '--host-memory-mib', '1'],
                'Python': peer, 'Python, keeping': [*peer, '--keep']}
    rates = {name: [] for name in commands}
    for _ in range(args.windows):
        for name, command in commands.items():
            rates[name].append(rate_of(command))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, rate in medians.items():
        print(f'{name:26} {rate:8.1f} samples/s   {rate / medians["Python"]:5.2f} times Python,'
              f' {rate / medians["Python, keeping"]:5.2f} times Python keeping')


if __name__ == '__main__':
    main()
