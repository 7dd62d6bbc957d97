"""Finds boxes in pictures with a process of `headroom detect` that stays alive.

The process reads pictures and paths from one pipe and writes boxes to another;
worker/tools/detect_service.h has the format. A `headroom detect` with files runs the
same code, so it finds the same boxes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from headroom_train.errors import DATA, REQUEST, HeadroomError, optional_package
from headroom_train.program import (Flag, PathLike, find_program, flag_words, last_line,
                                    refusal)
from headroom_train.results import Results

_REQUEST = struct.Struct("=6I2Q")  # magic kind height width channels bits | number payload
_ANSWER = struct.Struct("=6I2Q")  # magic kind height width boxes reserved | text pixels
_MAGIC = 0x31445248
_PIXELS, _FILE, _FRAME, _LIST = 1, 2, 3, 4
_SOURCES, _REFUSED, _END = 3, 4, 5
_BOX_BYTES = 24  # six float32: x1 y1 x2 y2 score class
_PIPE_BYTES = 1 << 20  # with a larger pipe a picture needs fewer writes
_KEYWORDS = {"img": "imgsz", "conf_thres": "conf", "iou_thres": "iou"}  # a flag's keyword here


class _Answer(NamedTuple):
    kind: int
    shape: Tuple[int, int]
    boxes: bytearray
    text: bytes
    pixels: bytearray


class _Ended(Exception):
    """The process has closed its end of a pipe."""


def _end(process: "subprocess.Popen[bytes]", maker: int) -> None:
    """Closes the pipes, which ends the process. Only `maker`, which started it, waits for its end."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    if os.getpid() != maker:
        return
    try:
        process.wait(5)  # the process may still be working on a picture
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Detector:
    """Finds boxes in pictures.

        with Detector("best.safetensors", conf=0.4) as detector:
            results = detector("street.jpg")
            print(results.xyxy, results.score, results.class_id)

    A picture is an array, a picture of Pillow, or the path of an image file. An array is
    of numpy, or converted by numpy.asarray, and has the type uint8 and the shape height x
    width x channels, or height x width for gray. Three channels are red, green and blue,
    or with `channel_order="bgr"` blue, green and red, as in OpenCV. A picture of Pillow is
    turned as its EXIF data says, like a file, and converted to RGB unless it is gray;
    `channel_order` has no effect on it.

    `imgsz` is the network's input (an int, or height and width; the size of training if
    None), `conf` the least score of a box, `iou` the overlap above which the box with the
    lower score is dropped, `tile` the size of tiles, `device` "cpu" or a card's number. The
    other flags of `headroom detect` that concern boxes are keywords too: `max_det=100`,
    `classes=[0, 2]`, `agnostic_nms=True`, `tile_overlap=0.3`, `threads=4` (1 if not given).

    `names` are the classes, `size` the network's height and width. Several threads may
    share a detector, which works on one picture at a time. The process ends with close(),
    at the end of a `with` block, or when Python ends.
    """

    def __init__(self, weights: PathLike, *, imgsz: Flag = None, conf: Optional[float] = None,
                 iou: Optional[float] = None, tile: Flag = None, device: Flag = None,
                 channel_order: str = "rgb", program: Optional[PathLike] = None,
                 **flags: Flag) -> None:
        self._numpy = optional_package("numpy", "Detector")
        if channel_order not in ("rgb", "bgr"):
            raise HeadroomError(REQUEST, f"[client] channel_order={channel_order!r}: write 'rgb', "
                                "or 'bgr' for arrays of OpenCV")
        if "source" in flags:
            raise HeadroomError(REQUEST, "[client] source= is not for a detector: give pictures "
                                "to detector(picture), or a folder to detector.stream(folder)")
        for flag, keyword in _KEYWORDS.items():
            if flag in flags:
                raise HeadroomError(REQUEST, f"[client] {flag}= is {keyword}= here: write that")
        self._is_bgr = channel_order == "bgr"
        words = flag_words({"weights": weights, "img": imgsz, "conf_thres": conf,
                            "iou_thres": iou, "tile": tile, "device": device, **flags})
        self._lock = threading.Lock()
        self._maker = os.getpid()
        self._printed: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [find_program(program), "detect", "--source=-", *words], bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._printed)
        self._close = weakref.finalize(self, _end, self._process, self._maker)
        self._widen_pipes()
        with self._turn():
            ready: Dict[str, Any] = json.loads(self._receive().text)
        self.names: List[str] = ready["names"]
        self.size: Tuple[int, int] = (ready["height"], ready["width"])
        self._categories: List[int] = ready["categories"]
        self._channels: int = ready["channels"]

    def __repr__(self) -> str:
        return f"Detector({len(self.names)} classes, {self.size[0]} x {self.size[1]})"

    def __enter__(self) -> "Detector":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process. The detector cannot be used any more."""
        self._close()

    # Pictures.

    def __call__(self, picture: Any, *, name: Optional[PathLike] = None) -> Results:
        """The boxes in a picture: an array, or the path of an image file.

        `name` is the path by which files that Results writes refer to an array.
        """
        if isinstance(picture, (str, os.PathLike)):
            return self._boxes_in_file(os.path.abspath(picture))
        array = self._array(picture)
        height, width, channels = array.shape
        answer = self._ask(_PIXELS, memoryview(array.reshape(-1)), REQUEST, height, width, channels)
        return self._results(answer, None if name is None else pathlib.Path(name), image=array)

    def stream(self, source: Any, *, vid_stride: int = 1) -> Iterator[Results]:
        """The boxes in each of several pictures, one after the other.

        `source` is what `headroom detect --source` takes: a folder, a pattern such as
        "a/*.jpg", a video, a .txt list, an image; or an iterable of arrays and paths, such as
        the frames of a camera, or an array of number x height x width x channels. Of a video,
        every `vid_stride`th frame is used. A file that cannot be read is skipped with a
        warning. Up to 8 videos can be read in turn; with more, a video is decoded again from
        its start each time.
        """
        if vid_stride < 1:
            raise HeadroomError(REQUEST, f"[client] vid_stride={vid_stride}: write 1 or more")
        if not isinstance(source, (str, os.PathLike)):
            yield from map(self, self._several(source))
            return
        if not os.fspath(source):
            raise HeadroomError(REQUEST, "[client] stream('') names nothing: name a folder")
        # Python's working folder may have changed since the process was started.
        listed = self._ask(_LIST, os.fsencode(os.path.abspath(source)), DATA)
        for entry in listed.text.split(b"\0")[:-1]:
            kind, what = entry[:1], os.fsdecode(entry[1:])
            try:
                if kind == b"i":
                    yield self._boxes_in_file(what)
                elif kind == b"v":
                    yield from self._boxes_in_video(what, vid_stride)
                else:
                    warnings.warn(f"left out: {what}", stacklevel=2)
            except _LeftOut as error:
                warnings.warn(f"left out: {error.text}", stacklevel=2)

    @staticmethod
    def _several(source: Any) -> Any:
        shape = getattr(source, "shape", None)
        if hasattr(source, "__iter__") and (shape is None or len(shape) == 4):
            return source
        what = f"an array of shape {shape}" if shape is not None else type(source).__name__
        raise HeadroomError(REQUEST, f"[client] {what} is not several pictures, such as a list of "
                            "arrays: one picture is for detector(picture)")

    def _array(self, picture: Any) -> Any:
        pillow = sys.modules.get("PIL.Image")  # without this module no picture can be Pillow's
        is_pillow = pillow is not None and isinstance(picture, pillow.Image)
        array = self._numpy.asarray(self._upright(picture) if is_pillow else picture)
        if array.dtype != self._numpy.uint8 or array.ndim not in (2, 3):
            raise HeadroomError(REQUEST, "[client] a picture is an array of height x width x "
                                f"channels, uint8, but this one is {array.dtype} of shape "
                                f"{array.shape}: convert it, or use stream() for several")
        if array.ndim == 2:
            array = array[:, :, None]
        if array.shape[2] == 1 and self._channels == 3:
            array = self._numpy.repeat(array, 3, axis=2)
        elif self._is_bgr and array.shape[2] == 3 and not is_pillow:
            array = array[:, :, ::-1]
        return self._numpy.ascontiguousarray(array)

    @staticmethod
    def _upright(picture: Any) -> Any:
        """Rotates a Pillow image as its EXIF data says and makes it RGB or gray, as files are read."""
        if picture.mode[0] in "IF":
            raise HeadroomError(REQUEST, f"[client] the picture has samples of Pillow's mode "
                                f"{picture.mode}, not of 8 bits: convert it")
        turned = optional_package("PIL.ImageOps", "a picture of Pillow", "pillow")
        upright = turned.exif_transpose(picture)
        return upright if upright.mode in ("RGB", "L") else upright.convert("RGB")

    def _boxes_in_file(self, path: str) -> Results:
        if os.path.isdir(path):
            raise HeadroomError(REQUEST, f"[client] {path} is a folder: for results in "
                                "detector.stream(folder)")
        return self._results(self._ask(_FILE, os.fsencode(path), DATA), pathlib.Path(path))

    def _boxes_in_video(self, path: str, stride: int) -> Iterator[Results]:
        video, number = pathlib.Path(path), 1
        while True:
            answer = self._ask(_FRAME, os.fsencode(path), DATA, number=number)
            if answer.kind == _END:
                break
            image = self._numpy.frombuffer(answer.pixels, self._numpy.uint8).reshape(
                *answer.shape, 3)
            yield self._results(answer, video.with_name(f"{video.stem}_{number}"), number, image)
            number += stride
        if answer.text:
            warnings.warn(f"{path} is damaged: {answer.text.decode(errors='replace')}",
                          stacklevel=3)

    def _results(self, answer: _Answer, path: Optional[pathlib.Path],
                 frame: Optional[int] = None, image: Any = None) -> Results:
        rows = self._numpy.frombuffer(answer.boxes, self._numpy.float32).reshape(-1, 6)
        return Results(rows[:, :4].copy(), rows[:, 4].copy(), rows[:, 5].astype(self._numpy.int64),
                       self.names, self._categories, answer.shape, path, frame, image)

    # The pipes. Each request has one answer.

    def _ask(self, kind: int, payload: Union[bytes, memoryview], refused: int, height: int = 0,
             width: int = 0, channels: int = 0, number: int = 0) -> _Answer:
        try:
            head = _REQUEST.pack(_MAGIC, kind, height, width, channels, 8, number, len(payload))
        except struct.error:
            raise HeadroomError(REQUEST, f"[client] a picture of {height} x {width} x {channels}, "
                                f"or frame {number}, is too large") from None
        self._require_open()  # before the lock: in a forked child it may be locked for ever
        with self._lock, self._turn():
            self._send(head)
            self._send(payload)
            answer = self._receive()
        if answer.kind == _REFUSED:
            error = _LeftOut if kind in (_FILE, _FRAME) else HeadroomError
            raise error(refused, answer.text.decode(errors="replace"))
        return answer

    def _require_open(self) -> None:
        if not self._close.alive:
            raise HeadroomError(REQUEST, "[client] the detector is closed: make a new one")
        if self._maker != os.getpid():
            raise HeadroomError(REQUEST, "[client] the detector belongs to the process that this "
                                "one was forked from: make one here")

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Encloses a request and its answer. If the answer is not read completely, closes the detector."""
        self._require_open()
        try:
            yield
        except _Ended:
            raise self._death() from None
        except ValueError:  # raised if another thread has closed the pipe
            self._require_open()
            self.close()
            raise
        except BaseException:  # such as KeyboardInterrupt
            self.close()
            raise

    def _send(self, data: Union[bytes, memoryview]) -> None:
        assert self._process.stdin is not None
        left = memoryview(data)
        while left:
            try:
                left = left[self._process.stdin.write(left):]
            except BrokenPipeError:
                raise _Ended from None

    def _receive(self) -> _Answer:
        magic, kind, height, width, boxes, _, text, pixels = _ANSWER.unpack(
            self._read(_ANSWER.size))
        if magic != _MAGIC:
            raise HeadroomError(1, "[client] headroom detect answers in another form: install "
                                "headroom and headroom-train of the same version")
        return _Answer(kind, (height, width), self._read(boxes * _BOX_BYTES),
                       bytes(self._read(text)), self._read(pixels))

    def _read(self, size: int) -> bytearray:
        assert self._process.stdout is not None
        data = bytearray(size)
        left = memoryview(data)
        while left:
            got = self._process.stdout.readinto(left)  # type: ignore[attr-defined]
            if not got:
                raise _Ended
            left = left[got:]
        return data

    def _widen_pipes(self) -> None:
        try:
            import fcntl
            fcntl.fcntl(self._process.stdin, 1031, _PIPE_BYTES)  # type: ignore[arg-type]
        except (ImportError, OSError):  # F_SETPIPE_SZ of Linux, which has a limit for each user
            pass

    def _death(self) -> HeadroomError:
        """The reason why the process has ended: its last line."""
        self.close()
        self._printed.seek(0)
        return refusal(self._process.returncode, None, last_line(self._printed.read()))


class _LeftOut(HeadroomError):
    """A file was skipped because it cannot be read."""
