"""Images per second of headroom_train.Detector, divided by those of `headroom detect`.

    detector_ratio.py HEADROOM HEADROOM_SHAPES [IMG [IMAGES [ROUNDS]]]

Three ways of detection take turns on the same JPEG images: `headroom detect --nosave`
reads the files, Detector.stream reads the files, and Detector.stream gets arrays that
were decoded before. The times are printed with the start of the process and the
reading of weights, and without them (the time for one image is subtracted). Both are
given as the median over the rounds and as the smallest value, on which other
processes of the machine have less influence. Needs numpy and Pillow.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy/python"))

import numpy
import PIL.Image

import headroom_train

PROGRAM, SHAPES = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
IMG, IMAGES, ROUNDS = (int(word) for word in [*sys.argv[3:], "640", "60", "5"][:3])


def seconds_of(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main():
    subprocess.run([SHAPES, "my", "--train", str(IMAGES), "--val", "8", "--size", str(IMG)],
                   check=True, stdout=subprocess.DEVNULL)
    headroom_train.train(data="my/data.yaml", cfg="yolov5n", img=64, batch=32, device="cpu",
                         max_steps=1, noplots=True, noval=True, processes=1).wait()
    weights = "runs/train/exp/weights/last.safetensors"
    files = sorted(pathlib.Path("my/images/train").iterdir())
    arrays = [numpy.asarray(PIL.Image.open(file)) for file in files]
    pathlib.Path("one").mkdir()
    (pathlib.Path("one") / files[0].name).symlink_to(files[0].resolve())

    def program(source):
        headroom_train.detect(weights=weights, source=source, img=IMG, nosave=True)

    def streamed(source):
        with headroom_train.Detector(weights, imgsz=IMG) as detector:
            for results in detector.stream(source):
                results.xyxy

    ways = {"headroom detect": (lambda: program("my/images/train"), lambda: program("one")),
            "files": (lambda: streamed("my/images/train"), lambda: streamed("one")),
            "arrays": (lambda: streamed(arrays), lambda: streamed(arrays[:1]))}
    times = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, (many, one) in ways.items():
            pair = seconds_of(many), seconds_of(one)
            if number:  # the first round warms the caches
                times[name].append(pair)
    print(f"{len(files)} images of {IMG} x {IMG}, yolov5n, {ROUNDS} rounds")
    for what, pick in ("median", statistics.median), ("least", min):
        whole = {name: pick(many for many, _ in pairs) for name, pairs in times.items()}
        alone = {name: pick(many - one for many, one in pairs) / (len(files) - 1)
                 for name, pairs in times.items()}
        for name in ways:
            print(f"{what:7} {name:16} {1e3 * alone[name]:7.2f} ms an image, ratio of rates "
                  f"{alone['headroom detect'] / alone[name]:.3f}; with the start "
                  f"{whole[name]:6.2f} s, ratio {whole['headroom detect'] / whole[name]:.3f}")


os.environ["HEADROOM_PROGRAM"] = PROGRAM
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
    os.chdir("/")
