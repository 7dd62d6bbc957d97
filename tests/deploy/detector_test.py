"""Compares headroom_train.Detector with `headroom detect` on the same pictures.

    detector_test.py HEADROOM HEADROOM_SHAPES [boxes|videos|exported|failures|results|supervision|names]

Exit code 77: a package that the part needs is not installed; its name is printed.
"""

import contextlib
import importlib
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import warnings

from python_client_test import CLIENT, MODEL, PROGRAM, ROOT, draw_data, need, refused

import headroom_train
from headroom_train import Detector, Results, write_results

IMG = 64


def trained():
    """Weights after a short training: the boxes have low scores, which depend on the picture."""
    run = headroom_train.train(data=draw_data(), **MODEL, epochs=2)
    run.wait()
    return run.best


def pictures(numpy):
    """A folder with lossless pictures of several sizes and kinds, and a file that is no picture."""
    pillow = need("PIL.Image")
    folder = pathlib.Path("in")
    (folder / "deeper").mkdir(parents=True)
    source = [numpy.asarray(pillow.open(file).convert("RGB"))
              for file in sorted(pathlib.Path("my/images/val").iterdir())]
    wide = numpy.concatenate(source[:3], axis=1)
    tall = numpy.concatenate(source[3:6], axis=0)[5:, 3:-8]
    for name, pixels in {"a": source[0], "wide": wide, "deeper/tall": tall, "0012": source[6],
                         "deeper/12": source[7], "deeper/a": source[1],
                         "black": numpy.zeros_like(wide)}.items():
        pillow.fromarray(pixels).save(folder / f"{name}.png")
    pillow.fromarray(wide[:, :, 1]).save(folder / "gray.png")
    # A photograph of a camera that was held on its side.
    turned = pillow.fromarray(wide)
    exif = turned.getexif()
    exif[274] = 6
    turned.save(folder / "turned.jpg", exif=exif)
    (folder / "broken.png").write_bytes((folder / "wide.png").read_bytes()[:300])
    return folder


def detected(weights, source, **flags):
    """The files that `headroom detect` writes for these flags."""
    shutil.rmtree("runs/detect", ignore_errors=True)
    found = headroom_train.detect(weights=weights, source=source, nosave=True, save_txt=True,
                                  save_conf=True, save_csv=True, save_json=True, **flags)
    return found.paths[0]


def all_of(detector, source, **options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        results = list(detector.stream(source, **options))
    return results, [str(one.message) for one in said]


def compare_files(results, folder):
    write_results(results, "ours.csv")
    assert pathlib.Path("ours.csv").read_bytes() == (folder / "predictions.csv").read_bytes()
    write_results(results, "ours.json")
    ours, theirs = (json.loads(pathlib.Path(file).read_text())
                    for file in ("ours.json", folder / "predictions.json"))
    assert ours == theirs, [pair for pair in zip(ours, theirs) if pair[0] != pair[1]][:3]
    texts = {}
    for one in results:
        name = one._stem()
        while name in texts:
            name += "_2"
        texts[name] = one.yolo_text(confidences=True)
    written = {file.stem: file.read_text() for file in (folder / "labels").glob("*.txt")}
    assert written == {name: text for name, text in texts.items() if text}
    return len(ours)


def guide_is_true(weights, folder):
    """Runs the first lines and the training of the guide's page as they are written."""
    page = (ROOT / "deploy/guide/python.md").read_text()
    code = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    shutil.copy(weights, "best.safetensors")
    shutil.copy(folder / "wide.png", "street.jpg")  # a PNG: the content decides, not the name
    for block in code:
        if "cv2" in block:  # a camera is needed
            compile(block, "python.md", "exec")
        else:
            exec(block, {})
    assert len(code) == 3


def check_boxes():
    numpy = need("numpy")
    pillow = need("PIL.Image")
    weights, folder = trained(), pictures(numpy)
    guide_is_true(weights, folder)
    counts = []
    for asked, flags in [
            ({"conf": 0.0005}, {"conf_thres": 0.0005}),
            ({"conf": 0.001, "iou": 0.3, "agnostic_nms": True, "resample": "area"},
             {"conf_thres": 0.001, "iou_thres": 0.3, "agnostic_nms": True, "resample": "area"}),
            ({"conf": 0.0005, "tile": (40, 48), "tile_overlap": 0.3, "max_det": 20, "classes": [1]},
             {"conf_thres": 0.0005, "tile": (40, 48), "tile_overlap": 0.3, "max_det": 20,
              "classes": [1]})]:
        theirs = detected(weights, folder.resolve(), img=IMG, **flags)
        with Detector(weights, imgsz=IMG, **asked) as detector:
            results, said = all_of(detector, folder)
            assert len(results) == 9 and len(said) == 1, (results, said)
            assert re.fullmatch(r"left out: .*broken\.png: .+", said[0]), said
            counts.append(compare_files(results, theirs))
    assert counts[0] > 20 and counts[2] > 0 and len(set(counts)) == 3, counts
    as_arrays(numpy, pillow, weights, folder)


def same(one, other):
    return (len(one) and one.shape == other.shape and (one.xyxy == other.xyxy).all()
            and (one.score == other.score).all() and (one.class_id == other.class_id).all())


def as_arrays(numpy, pillow, weights, folder):
    """Checks that a lossless file, its pixels and views of them give the same boxes."""
    with Detector(str(weights), imgsz=IMG, conf=0.0005) as detector:
        of_file = detector(folder / "wide.png")
        assert of_file.xyxy.dtype == numpy.float32 and of_file.xyxy.shape == (len(of_file), 4)
        assert of_file.score.dtype == numpy.float32 and of_file.class_id.dtype == numpy.int64
        assert (numpy.diff(of_file.score) <= 0).all() and of_file.class_id.max() < 3
        assert detector.size == (IMG, IMG) and detector.names, detector
        image = pillow.open(folder / "wide.png")
        pixels = numpy.asarray(image)
        assert same(detector(pixels), of_file) and same(detector(image), of_file)
        large = numpy.zeros((200, 300, 3), numpy.uint8)
        view = large[10:10 + pixels.shape[0], 20:20 + pixels.shape[1]]
        view[:] = pixels
        assert same(detector(view), of_file), "an array that is not contiguous"
        assert same(detector(numpy.asarray(pillow.open(folder / "gray.png"))),
                    detector(folder / "gray.png"))
        assert not same(detector(pixels[:, :, ::-1].copy()), of_file), "colours make no difference"
        frames, said = all_of(detector, (pixels for _ in range(3)))
        assert not said and len(frames) == 3 and all(same(one, of_file) for one in frames)
        assert (detector(folder / "turned.jpg").image.shape[:2]
                == detector(folder / "turned.jpg").shape == pixels.shape[1::-1])
        assert same(detector(pillow.open(folder / "turned.jpg")), detector(folder / "turned.jpg"))
        assert same(detector(pillow.open(folder / "gray.png")), detector(folder / "gray.png"))
        for mode in ("P", "RGBA", "HSV", "CMYK"):
            other = image.convert(mode)
            assert same(detector(other), detector(other.convert("RGB"))), mode
        several = detector.stream(numpy.stack([pixels, pixels]))
        assert [same(one, of_file) for one in several] == [True, True]
        # The process keeps the working folder that Python had at its start.
        os.chdir(folder / "deeper")
        assert [one.path.name for one in detector.stream(".")] == ["12.png", "a.png", "tall.png"]
        os.chdir("../..")
    with Detector(weights, imgsz=IMG, conf=0.0005, channel_order="bgr") as detector:
        of_bgr = detector(pixels[:, :, ::-1])
        assert same(of_bgr, of_file) and (of_bgr.image == pixels).all()
        assert same(detector(image), of_file), "a picture of Pillow has no order of channels"
        assert same(detector(folder / "wide.png"), of_file), "files are as they are"


def check_videos():
    numpy = need("numpy")
    need("PIL.Image")
    if not shutil.which("ffmpeg"):
        print("skipped: ffmpeg is not installed")
        sys.exit(77)
    weights, folder = trained(), pictures(numpy)
    subprocess.run(["ffmpeg", "-v", "error", "-loop", "1", "-i", folder / "wide.png", "-frames:v",
                    "7", "-vf", "crop=96:64:n*12:0", "-c:v", "mpeg4", "-q:v", "2", "clip.mp4"],
                   check=True, stdin=subprocess.DEVNULL)
    theirs = detected(weights, "clip.mp4", img=IMG, conf_thres=0.0005, vid_stride=3)
    with Detector(weights, imgsz=IMG, conf=0.0005) as detector:
        results, said = all_of(detector, "clip.mp4", vid_stride=3)
        assert not said and [one.frame for one in results] == [1, 4, 7], results
        assert compare_files(results, theirs) > 3
        # A result of a frame has the frame's pixels. Detecting in them gives the same boxes.
        assert same(detector(results[1].image), results[1])
        # One video is not read to its end, and then two are read at the same time.
        first = next(detector.stream("clip.mp4"))
        pairs = list(zip(detector.stream("clip.mp4"), detector.stream("clip.mp4", vid_stride=2)))
        assert len(pairs) == 4 and same(pairs[0][0], first) and same(pairs[3][1], results[2])
        pathlib.Path("cut.mp4").write_bytes(pathlib.Path("clip.mp4").read_bytes()[:200])
        results, said = all_of(detector, "cut.mp4")
        assert not results and re.fullmatch(r"left out: .*cut\.mp4: .+", said[0]), said


    # Two streams of one video at the same time start one decoder each, and no more.
    decoders = set()
    with Detector(weights, imgsz=IMG) as detector:
        for _ in zip(detector.stream("clip.mp4"), detector.stream("clip.mp4")):
            decoders |= decoders_of(detector._process.pid)
    assert len(decoders) == 2, decoders


def decoders_of(process):
    """The processes of ffmpeg that this process has started."""
    found = set()
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "ffmpeg" and int(rest.split()[1]) == process:
                found.add(stat.parent.name)
    return found


def lively(weights):
    """Returns the weights with smaller running variances, which make the signals stronger.

    After so little training many boxes have the same score to the last bit or two, so that
    rounding decides which of two boxes is dropped.
    """
    data = bytearray(weights.read_bytes())
    [size] = struct.unpack_from("<Q", data)
    for name, one in json.loads(data[8:8 + size]).items():
        if name.endswith("running_var"):
            assert one["dtype"] == "F32", one
            begin, end = (8 + size + at for at in one["data_offsets"])
            data[begin:end] = struct.pack("<f", 0.15) * ((end - begin) // 4)
    pathlib.Path("lively.safetensors").write_bytes(data)
    return pathlib.Path("lively.safetensors")


def check_exported():
    """Checks that a network exported with --nms finds the same boxes as detect in a folder of images."""
    numpy = need("numpy")
    pillow = need("PIL.Image")
    onnxruntime = need("onnxruntime")
    weights = lively(trained())
    pathlib.Path("in").mkdir()
    for file in pathlib.Path("my/images/val").iterdir():
        pillow.open(file).convert("RGB").save(f"in/{file.stem}.png")
    [network] = headroom_train.export(weights=weights, include="onnx", img=IMG, nms=True,
                                      conf_thres=0.0005, topk_per_class=1000).paths
    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    count, worst, classes = 0, 0.0, set()
    with Detector(weights, imgsz=IMG, conf=0.0005) as detector:
        for results in detector.stream("in"):
            pixels = results.image.transpose(2, 0, 1)[None].astype(numpy.float32) / 255
            rows = session.run(None, {"images": pixels})[0]
            assert len(rows) == len(results) > 0, (len(rows), len(results))
            ours = numpy.column_stack([results.xyxy, results.score, results.class_id])
            theirs = numpy.column_stack([rows[:, 1:5].clip(0, IMG), rows[:, 5:]])
            # Rounding may change the order of two boxes with nearly the same score.
            differences = numpy.abs(ours[:, None] - theirs[None]).max(axis=2)
            assert len(set(differences.argmin(axis=1))) == len(ours), "two boxes are like one"
            count, classes = count + len(ours), classes | set(ours[:, 5])
            worst = max(worst, float(differences.min(axis=1).max()))
    print(f"{count} boxes of {len(classes)} classes, the largest difference {worst:.2g}")
    assert worst < 1e-3 and len(classes) > 1 and count > 20


def is_running(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_for_end(process):
    limit = time.monotonic() + 60
    while is_running(process):
        assert time.monotonic() < limit, "the process has outlived its Python"
        time.sleep(0.05)


def refused_pictures(numpy, detector, picture):
    known = detector(picture)
    process = detector._process.pid
    with refused(2, "uint8", "float64"):
        detector(picture / 255)
    with refused(2, "(1, 64, 64, 3)", "stream()"):
        detector(picture[None])
    with refused(2, "the model's pictures have 3 channels, but this one has 4"):
        detector(numpy.zeros((64, 64, 4), numpy.uint8))
    with refused(2, "a picture of 0 x 64 pixels"):
        detector(picture[:0])
    with refused(2, "(64, 64, 3) is not several pictures"):
        next(detector.stream(picture))
    with refused(2, "int is not several pictures"):
        next(detector.stream(3))
    with refused(2, "names nothing"):
        next(detector.stream(""))
    with refused(2, "is too large"):
        detector(numpy.zeros((2**33, 0, 3), numpy.uint8))
    with refused(4, "nowhere.png"):
        detector("nowhere.png")
    with refused(4, "there is nothing at"):
        next(detector.stream("nowhere"))
    with refused(2, "is a folder", "stream("):
        detector("my")
    with refused(2, "vid_stride=0"):
        next(detector.stream("my", vid_stride=0))
    pathlib.Path("text.png").write_text("no picture")
    with refused(4, "text.png"):
        detector("text.png")
    assert same(detector(picture), known) and detector._process.pid == process


def refused_detectors(weights):
    with refused(2, "channel_order='rbg'", "'bgr'"):
        Detector(weights, channel_order="rbg")
    with refused(2, "source= is not for a detector"):
        Detector(weights, source="my")
    with refused(2, "--save-txt means nothing with --source -"):
        Detector(weights, save_txt=True)
    for flag in ({"nosave": True}, {"project": "x"}, {"name": "x"}):
        with refused(2, f"--{next(iter(flag))} means nothing with --source -"):
            Detector(weights, **flag)
    with refused(2, "img= is imgsz= here"):
        Detector(weights, img=32)
    with refused(2, "nowhere.safetensors"):
        Detector("nowhere.safetensors")
    with refused(2, "--conf-thres"):
        Detector(weights, conf=7)
    with refused(2, "--conf-thress"):
        Detector(weights, conf_thress=0.5)
    # The program first prints the size of the training. Only its last line is the reason.
    with refused(2, "[detect] --classes 7 is no class of these weights"):
        Detector(weights, classes=7)


def ended_processes(weights, picture):
    detector = Detector(weights, imgsz=IMG, conf=0.0005)
    process = detector._process
    child = os.fork()
    if child == 0:
        try:
            detector(picture)
        except headroom_train.HeadroomError as error:
            os._exit(7 if "forked" in error.text else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(detector(picture)), "a forked child has taken the detector along"
    detector._lock.acquire()  # as if another thread were detecting
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            detector(picture)
        except headroom_train.HeadroomError:
            os._exit(7)
        os._exit(9)
    detector._lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    os.kill(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the child, too
    assert len(detector(picture))
    os.kill(process.pid, signal.SIGKILL)
    with refused(5, "killed by signal 9"):
        while True:
            detector(picture)
    with refused(2, "the detector is closed"):
        detector(picture)
    detector.close()

    with Detector(weights, imgsz=IMG) as detector:
        process = detector._process
    assert process.returncode == 0
    detector = Detector(weights, imgsz=IMG)
    process = detector._process
    del detector
    assert process.returncode == 0

    # If a caller stops waiting for an answer, the next request must not get that answer.
    detector = Detector(weights, imgsz=IMG)
    detector._receive = lambda: os.kill(os.getpid(), signal.SIGINT)
    with contextlib.suppress(KeyboardInterrupt):
        detector(picture)
    with refused(2, "the detector is closed"):
        detector(picture)

    # Another thread closes the detector while this thread waits for an answer.
    detector = Detector(weights, imgsz=IMG)
    detector._receive = lambda: (detector.close(), detector._process.stdout.read(1))
    with refused(2, "the detector is closed"):
        detector(picture)

    # The detector's process ends with its Python process, even if that is killed.
    code = ("import os, signal, sys; from headroom_train import Detector; "
            "detector = Detector(sys.argv[1]); print(detector._process.pid, flush=True); "
            "os.kill(os.getpid(), signal.SIGKILL)")
    done = subprocess.run([sys.executable, "-Bc", code, weights], stdout=subprocess.PIPE,
                          env={**os.environ, "PYTHONPATH": str(CLIENT)}, check=False)
    assert done.returncode == -signal.SIGKILL
    wait_for_end(int(done.stdout))


def check_failures():
    numpy = need("numpy")
    weights = trained()
    picture = numpy.full((64, 64, 3), 114, numpy.uint8)
    picture[20:50, 10:40] = (250, 30, 30)
    with Detector(weights, imgsz=IMG, conf=0.0005) as detector:
        refused_pictures(numpy, detector, picture)
    refused_detectors(weights)
    ended_processes(weights, picture)


# Tests Results alone, without starting a program.

def results_of(numpy, **more):
    image = numpy.zeros((40, 60, 3), numpy.uint8)
    image[10:30, 5:25] = (0, 200, 0)
    return Results(numpy.array([[5.25, 10, 24.75, 30], [30, 0, 70, 12.125], [3, 50, 9, 60]],
                               numpy.float32),
                   numpy.array([0.9, 0.5, 0.25], numpy.float32), numpy.array([1, 0, 1]),
                   ["cat", "a/b"], [0, 1], (40, 60), **{"image": image, **more})


def check_results():
    numpy = need("numpy")
    one = results_of(numpy, path=pathlib.Path("d/0042.jpg"))
    assert repr(one) == "Results(0042.jpg: 1 cat, 2 a/b)" and len(one) == 3
    assert repr(results_of(numpy)) == "Results(array: 1 cat, 2 a/b)"
    assert one.table()[0] == {"class": 1, "name": "a/b", "score": numpy.float32(0.9), "x1": 5.25,
                              "y1": 10, "x2": 24.75, "y2": 30}, one.table()
    assert [crop.shape[:2] for crop in one.crops()] == [(20, 20), (13, 30), (0, 6)]
    assert (one.crops()[0] == (0, 200, 0)).all()
    one.write("one.txt", confidences=True)
    assert pathlib.Path("one.txt").read_text().splitlines()[0] == (
        "1 0.250000 0.500000 0.325000 0.500000 0.900000")
    one.write("one.json")
    assert json.loads(pathlib.Path("one.json").read_text())[1] == {
        "image_id": 42, "category_id": 0, "bbox": [30, 0, 40, 12.125], "score": 0.5}
    two = results_of(numpy, path=pathlib.Path("e/42.jpg"))
    clip = results_of(numpy, path=pathlib.Path("e/clip.v_3"), frame=3)
    write_results([one, two, two, clip], "all.json")
    ids = [record["image_id"] for record in json.loads(pathlib.Path("all.json").read_text())[::3]]
    assert ids == [42, "42_2", "42_3", "clip.v_3"], ids
    write_results([one, clip], "all.csv")
    lines = pathlib.Path("all.csv").read_text().splitlines()
    assert len(lines) == 7 and lines[1] == "d/0042.jpg,1,a/b,0.90000,5.25,10.00,24.75,30.00"
    with refused(2, "'.yaml'", ".csv"):
        one.write("one.yaml")
    with refused(2, "name='street.jpg'"):
        results_of(numpy).write("one.csv")

    # Without Pillow, the error says what to install. It is an ImportError too.
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "PIL"}
    sys.modules["PIL"] = None
    with refused(2, "pip install pillow"):
        one.draw()
    try:
        one.save("one.png")
    except ImportError as error:
        assert "pip install pillow" in str(error)
    del sys.modules["PIL"]
    sys.modules.update(kept)
    pillow = need("PIL.Image")
    drawn = one.draw()
    assert drawn.shape == (40, 60, 3) and (drawn != one.image).any()
    assert not one.image[0].any(), "draw() has changed the picture"
    one.save("one.png")
    assert (numpy.asarray(pillow.open("one.png")) == drawn).all()
    written = one.save_crops("crops")
    assert [str(path) for path in written] == ["crops/a_b/0042_1.jpg", "crops/cat/0042_2.jpg"]
    again = results_of(numpy, path=pathlib.Path("other/0042.png")).save_crops("crops")
    assert [path.name for path in again] == ["0042_2_1.jpg", "0042_2_2.jpg"], again
    assert numpy.abs(numpy.asarray(pillow.open(written[0])).astype(int) - (0, 200, 0)).max() < 9
    pillow.fromarray(one.image).save("0042.png")
    again = results_of(numpy, path=pathlib.Path("0042.png"), image=None)
    assert (again.image == one.image).all()
    pillow.fromarray(one.image[1:]).save("0042.png")
    with refused(2, "another picture now"):
        results_of(numpy, path=pathlib.Path("0042.png"), image=None).image
    with refused(2, "4 channels"):
        results_of(numpy, image=numpy.zeros((40, 60, 4), numpy.uint8)).draw()


def check_supervision():
    numpy = need("numpy")
    one = results_of(numpy)
    sys.modules["supervision"], kept = None, sys.modules.pop("supervision", None)
    try:
        one.to_supervision()
        raise AssertionError("nothing was refused")
    except ImportError as error:
        assert "to_supervision() needs supervision" in str(error)
        assert "pip install supervision" in str(error)
    del sys.modules["supervision"]
    if kept is not None:
        sys.modules["supervision"] = kept
    supervision = need("supervision")
    found = one.to_supervision()
    assert isinstance(found, supervision.Detections) and len(found) == 3
    assert (found.xyxy == one.xyxy).all() and (found.confidence == one.score).all()
    assert (found[found.class_id == 1].data["class_name"] == "a/b").all()
    empty = Results(one.xyxy[:0], one.score[:0], one.class_id[:0], one.names, [0, 1], one.shape)
    assert len(empty.to_supervision()) == 0


# Tests the names. Another distribution on PyPI has a package and a program `headroom`.

def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def imported(folder):
    done = subprocess.run([sys.executable, "-Bc", "import headroom; print(headroom.whose)"],
                          env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True,
                          text=True, check=False)
    return done.stdout or done.stderr.splitlines()[-1]


def check_names():
    site = pathlib.Path("site").resolve()
    site.mkdir()
    shutil.copy(CLIENT / "headroom.py", site)
    assert imported(site) == ("ImportError: headroom-train is imported as headroom_train: write "
                              "`import headroom_train as headroom`"), imported(site)
    # `import headroom` gives the package of the other distribution, whichever is installed first: no file belongs to both.
    (site / "headroom").mkdir()
    (site / "headroom/__init__.py").write_text("whose = 'theirs'\n")
    assert imported(site) == "theirs\n", imported(site)

    other = script(pathlib.Path("bin/headroom").resolve(), "echo headroom, version 0.42")
    os.environ.pop("HEADROOM_PROGRAM")
    kept = os.environ["PATH"]
    os.environ["PATH"] = f"{other.parent}:{kept}"
    with refused(2, f"{other} is not the trainer headroom", "program=", "HEADROOM_PROGRAM"):
        headroom_train.plan(cfg="yolov5n")
    with refused(2, f"{other} is not the trainer headroom"):
        headroom_train.plan(cfg="yolov5n", program=other)
    broken = script(pathlib.Path("broken/headroom").resolve(),
                    "echo starting >&2; echo headroom: libm.so.9: no such file >&2; exit 127")
    with refused(5, f"{broken} --help does not work (exit code 127: headroom: libm.so.9: no such"):
        headroom_train.plan(cfg="yolov5n", program=broken)
    os.environ["PATH"] = f"{pathlib.Path(PROGRAM).parent}:{kept}"
    assert headroom_train.plan(cfg="yolov5n", img=64, batch=8)["exit_code"] == 0
    os.environ["PATH"] = kept
    # The program of the Python environment is found, even if PATH has another `headroom` before it.
    code = ("import sysconfig, sys; sysconfig.get_path = lambda _: sys.argv[1]; "
            "from headroom_train.program import find_program; print(find_program())")
    done = subprocess.run([sys.executable, "-Bc", code, str(pathlib.Path(PROGRAM).parent)],
                          env={**os.environ, "PATH": f"{other.parent}:{kept}",
                               "PYTHONPATH": str(CLIENT)}, capture_output=True, text=True,
                          check=True)
    assert done.stdout.strip() == PROGRAM, done.stdout


def main():
    os.environ["HEADROOM_PROGRAM"] = PROGRAM
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            {"boxes": check_boxes, "videos": check_videos,
             "exported": check_exported, "failures": check_failures,
             "results": check_results, "supervision": check_supervision,
             "names": check_names}[sys.argv[3]]()
        finally:
            os.chdir("/")


if __name__ == "__main__":
    main()
