#!/usr/bin/env python3
"""The costs and savings of packs and of the index of loose files.

    packs.py start [--images 100000] [--folder DIR] [--headroom PROGRAM]
    packs.py index [--images 100000] [--folder DIR] [--headroom PROGRAM]
    packs.py slow  [--milliseconds 5 50] [--loader build/bin/benchmark_loader]

start  packs a data set of --images images (one small JPEG under many names,
       boxes in one CSV). Measures the seconds to the first step of a run and
       the largest resident memory of its process, on the files and on the packs
index  measures the same two figures on a data set of --images images (links to
       64 files) in which each image has a label file: without an index, at the
       first start and at the second start
slow   measures the mosaic samples per second of a loader of 2 threads from 600
       images of 500 x 400 pixels, loose and packed. They are on a file system
       in user space that delays every call by --milliseconds. Needs root and
       Debian's python3-fusepy; the system's page cache is emptied before

Pictures are drawn with OpenCV (pip install opencv-python-headless).
"""
import argparse
import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def picture(path, side, seed):
    """A JPEG of noise on a gradient of brightness."""
    import numpy
    import cv2
    height, width = side
    noise = numpy.random.default_rng(seed).integers(0, 90, (height, width, 3))
    slope = numpy.linspace(0, 160, width)[None, :, None]
    cv2.imwrite(str(path), (noise + slope).astype('uint8'))


def make_many(folder, count):
    images = folder / 'images' / 'train'
    images.mkdir(parents=True)
    picture(folder / 'one.jpg', (48, 48), 1)
    with open(folder / 'train_labels.csv', 'w') as table:
        table.write('filename,class,xmin,ymin,xmax,ymax\n')
        for i in range(count):
            name = f'{i:08d}.jpg'
            os.symlink('../../one.jpg', images / name)
            table.write(f'{name},a,{i % 20},{i % 13},{i % 20 + 20},{i % 13 + 20}\n')
    val = folder / 'images' / 'val'
    val.mkdir()
    shutil.copy(folder / 'one.jpg', val / 'v.jpg')
    (folder / 'val_labels.csv').write_text(
        'filename,class,xmin,ymin,xmax,ymax\nv.jpg,a,5,5,30,30\n')
    (folder / 'data.yaml').write_text(
        'train: train_labels.csv\nval: val_labels.csv\n'
        'images: {train: images/train, val: images/val}\nnames: [a]\n')
    return folder / 'data.yaml'


def make_files(folder, count):
    """The images are links to 64 files. Each image has its own label file."""
    originals = folder / 'originals'
    originals.mkdir(parents=True)
    for seed in range(64):
        picture(originals / f'{seed}.jpg', (48, 48), seed)
    for begin in range(0, count, 10000):
        images, labels = (folder / part / 'train' / f'{begin // 10000:04d}'
                          for part in ('images', 'labels'))
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        for i in range(begin, min(begin + 10000, count)):
            os.link(originals / f'{i % 64}.jpg', images / f'{i:08d}.jpg')
            (labels / f'{i:08d}.txt').write_text(f'0 0.5 0.5 0.{i % 40 + 20} 0.{i % 30 + 20}\n')
    for part in ('images', 'labels'):
        (folder / part / 'val').mkdir()
    shutil.copy(originals / '0.jpg', folder / 'images/val/v.jpg')
    (folder / 'labels/val/v.txt').write_text('0 0.5 0.5 0.4 0.4\n')
    (folder / 'data.yaml').write_text('train: images/train\nval: images/val\nnames: [a]\n')
    return folder / 'data.yaml'


def resident(folder):
    """The largest resident memory of the run's workers, in MiB."""
    largest = 0
    for entry in pathlib.Path('/proc').iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / 'cmdline').read_bytes().split(b'\0')
            if not words[0].endswith(b'headroom-worker') or (
                    os.readlink(entry / 'cwd') != str(folder)):
                continue
            for line in (entry / 'status').read_text().splitlines():
                if line.startswith('VmHWM:'):
                    largest = max(largest, int(line.split()[1]) // 1024)
        except OSError:
            continue
    return largest


def first_step(headroom, data, folder, words=()):
    command = [headroom, 'train', '--data', str(data), '--cfg', 'yolov5n', '--img',
               '64', '--batch', '8', '--processes', '1', '--max-steps', '2',
               '--noautoanchor', '--name', 'run', '--project', str(folder), '--page', 'off',
               '--device', 'cpu', *words]
    shutil.rmtree(folder, ignore_errors=True)
    environment = {**os.environ, 'XDG_CACHE_HOME': str(folder.parent / 'cache')}
    begin = time.monotonic()
    run = subprocess.Popen(command, cwd=folder.parent, env=environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds, memory = None, 0
    steps = folder / 'run' / 'steps.jsonl'
    while run.poll() is None:
        memory = max(memory, resident(folder.parent))
        if seconds is None and steps.exists() and steps.stat().st_size:
            seconds = time.monotonic() - begin
        time.sleep(0.05)
    if run.returncode:
        sys.exit(run.stderr.read().decode())
    return seconds, memory


def start(arguments):
    folder = pathlib.Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        data = make_many(folder / 'files', arguments.images)
        begin = time.monotonic()
        subprocess.run([arguments.headroom, 'pack', '--data', str(data), '--output',
                        str(folder / 'packs')], check=True, stdout=subprocess.DEVNULL)
        packing = time.monotonic() - begin
        print(f'{arguments.images} images, packed in {packing:.0f} s, index of '
              f'{(folder / "packs/train.index").stat().st_size / 2**20:.0f} MiB')
        print('| | seconds to the first step | resident MiB |\n|---|---|---|')
        for name, source in [('files', data), ('packs', folder / 'packs')]:
            seconds, memory = first_step(arguments.headroom, source, folder / 'runs',
                                         ['--noindex'])
            print(f'| {name} | {seconds:.1f} | {memory} |', flush=True)
    finally:
        shutil.rmtree(folder)


def index(arguments):
    folder = pathlib.Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        data = make_files(folder / 'files', arguments.images)
        time.sleep(2.1)  # the index does not trust files that are younger, and they would be read again
        print(f'| {arguments.images} images | seconds to the first step | resident MiB |\n'
              '|---|---|---|')
        for name, words in [('without an index', ['--noindex']), ('first start', []),
                            ('second start', [])]:
            seconds, memory = first_step(arguments.headroom, data, folder / 'runs', words)
            print(f'| {name} | {seconds:.1f} | {memory} |', flush=True)
        size = sum(file.stat().st_size for file in (folder / 'cache').rglob('*') if file.is_file())
        print(f'index of {size / 2**20:.0f} MiB')
    finally:
        shutil.rmtree(folder)


def serve_late(source, mount, milliseconds):
    """Mounts `source` at `mount`, with a delay for every call. Never returns."""
    import fusepy

    class Late(fusepy.Operations):
        def __call__(self, call, *parameters):
            if call in ('getattr', 'open', 'read', 'readdir'):
                time.sleep(milliseconds / 1000)
            return super().__call__(call, *parameters)

        def place(self, path):
            return str(source) + path

        def getattr(self, path, handle=None):
            try:
                status = os.lstat(self.place(path))
            except OSError as error:
                raise fusepy.FuseOSError(error.errno)
            return {key: getattr(status, key) for key in (
                'st_mode', 'st_size', 'st_mtime', 'st_ctime', 'st_nlink', 'st_uid',
                'st_gid')}

        def readdir(self, path, handle):
            return ['.', '..', *os.listdir(self.place(path))]

        def open(self, path, flags):
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise fusepy.FuseOSError(errno.EROFS)
            return os.open(self.place(path), os.O_RDONLY)

        def read(self, path, size, offset, handle):
            return os.pread(handle, size, offset)

        def release(self, path, handle):
            os.close(handle)
            return 0

    fusepy.FUSE(Late(), str(mount), foreground=True, nothreads=False, ro=True)


def slow(arguments):
    folder = pathlib.Path(tempfile.mkdtemp(dir=arguments.folder))
    images, labels = folder / 'real/images/train', folder / 'real/labels/train'
    for part in (images, labels, folder / 'late'):
        part.mkdir(parents=True)
    for i in range(600):
        picture(images / f'{i}.jpg', (400, 500), i)
        (labels / f'{i}.txt').write_text('0 .5 .5 .3 .3\n')
    (folder / 'real/data.yaml').write_text('train: images/train\nval: images/train\nnames: [a]\n')
    subprocess.run([arguments.headroom, 'pack', '--data', str(folder / 'real/data.yaml'),
                    '--output', str(folder / 'real/packs')], check=True,
                   stdout=subprocess.DEVNULL)

    def samples_a_second(place, data):
        subprocess.run(['sh', '-c', 'sync; echo 3 > /proc/sys/vm/drop_caches'], check=True)
        words = [arguments.loader, '--data', str(place / data), '--img', '320',
                 '--samples', '300', '--threads', '2', '--host-memory-mib', '64', '--cold']
        answer = subprocess.run(words, check=True, capture_output=True, text=True)
        return json.loads(answer.stdout)['samples_per_second']

    print('| a call takes | files | packs |\n|---|---|---|')
    row = [samples_a_second(folder / 'real', data) for data in ('data.yaml', 'packs')]
    print(f'| local disk | {row[0]:.0f} | {row[1]:.0f} |', flush=True)
    for milliseconds in arguments.milliseconds:
        row = []
        for data in ('data.yaml', 'packs'):
            server = subprocess.Popen([sys.executable, __file__, 'serve', str(folder / 'real'),
                                       str(folder / 'late'), '--milliseconds',
                                       str(milliseconds)])
            while not (folder / 'late/data.yaml').exists():
                time.sleep(0.1)
            row.append(samples_a_second(folder / 'late', data))
            subprocess.run(['umount', str(folder / 'late')], check=True)
            server.wait()
        print(f'| {milliseconds:g} ms | {row[0]:.0f} | {row[1]:.0f} |', flush=True)
    shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=['start', 'index', 'slow', 'serve'])
    parser.add_argument('places', nargs='*', type=pathlib.Path)
    parser.add_argument('--images', type=int, default=100000)
    parser.add_argument('--milliseconds', type=float, nargs='+', default=[5, 50])
    parser.add_argument('--folder')
    parser.add_argument('--headroom', default=str(ROOT / 'build/bin/headroom'))
    parser.add_argument('--loader', default=str(ROOT / 'build/bin/benchmark_loader'))
    arguments = parser.parse_args()
    if arguments.what == 'serve':
        serve_late(*arguments.places, arguments.milliseconds[0])
    elif arguments.what == 'start':
        start(arguments)
    elif arguments.what == 'index':
        index(arguments)
    else:
        slow(arguments)


if __name__ == '__main__':
    main()
