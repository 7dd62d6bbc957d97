"""The boxes that a Detector has found in a picture: as arrays, drawn, cut out, written."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pathlib
import re
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

from headroom_train.errors import REQUEST, HeadroomError, optional_package
from headroom_train.program import PathLike
from headroom_train.table import Table


def _name_of(kind: str) -> str:
    """A class name as one component of a path, as in `headroom detect --save-crop`."""
    name = "".join("_" if c in "/\\" or c < " " else c for c in kind)
    return "_" if name in ("", ".", "..") else name


class Results:
    """The boxes of one picture, by descending score.

    `xyxy` is [N, 4] float32: left, top, right and bottom in pixels of the picture.
    `score` is [N] float32, 0 to 1. `class_id` is [N] int64, an index into `names`.
    `shape` is the picture's (height, width). `path` is the image's file; None for an
    array without a name. For frame 12 of a video FOLDER/NAME.mp4, `frame` is 12, counted
    from 1, and `path` is FOLDER/NAME_12.
    """

    def __init__(self, xyxy: Any, score: Any, class_id: Any, names: Sequence[str],
                 categories: Sequence[int], shape: Tuple[int, int],
                 path: Optional[pathlib.Path] = None, frame: Optional[int] = None,
                 image: Any = None) -> None:
        self.xyxy = xyxy
        self.score = score
        self.class_id = class_id
        self.names = list(names)
        self.shape = shape
        self.path = path
        self.frame = frame
        self._categories = list(categories)
        self._image = image

    def __len__(self) -> int:
        return len(self.score)

    def __repr__(self) -> str:
        counts = [(int((self.class_id == kind).sum()), name)
                  for kind, name in enumerate(self.names)]
        found = ", ".join(f"{count} {name}" for count, name in counts if count) or "nothing"
        return f"Results({self.path.name if self.path else 'array'}: {found})"

    def table(self) -> Table:
        """A record for each box, for display and for pandas (`table().frame()`)."""
        return Table({"class": kind, "name": self.names[kind], "score": score,
                      "x1": box[0], "y1": box[1], "x2": box[2], "y2": box[3]}
                     for box, score, kind in zip(self.xyxy.tolist(), self.score.tolist(),
                                                 self.class_id.tolist()))

    def to_supervision(self) -> Any:
        """The boxes as supervision.Detections, with `class_name` in its data."""
        supervision = optional_package("supervision", "to_supervision()")
        numpy = optional_package("numpy", "to_supervision()")
        names = numpy.array([self.names[kind] for kind in self.class_id], dtype=str)
        return supervision.Detections(xyxy=self.xyxy, confidence=self.score,
                                      class_id=self.class_id, data={"class_name": names})

    # Pictures.

    @property
    def image(self) -> Any:
        """The picture as an RGB array. An image file is read again for it, which needs Pillow."""
        if self._image is None:
            numpy = optional_package("numpy", "image")
            pillow = optional_package("PIL.Image", "reading a picture", "pillow")
            turned = optional_package("PIL.ImageOps", "reading a picture", "pillow")
            with pillow.open(self.path) as file:
                image = numpy.asarray(turned.exif_transpose(file).convert("RGB"))
            if image.shape[:2] != self.shape:
                raise HeadroomError(REQUEST, f"[client] {self.path} is another picture now: "
                                    "detect in it again")
            self._image = image
        return self._image

    def draw(self, line_width: Optional[int] = None) -> Any:
        """A copy of the picture with boxes, names and scores, as an array, RGB. Needs Pillow."""
        numpy = optional_package("numpy", "draw()")
        painter = optional_package("PIL.ImageDraw", "draw()", "pillow")
        fonts = optional_package("PIL.ImageFont", "draw()", "pillow")
        image = _picture(self.image)
        width = line_width or max(2, round(sum(self.shape) / 2 * 0.003))
        pen = painter.Draw(image)
        font = fonts.load_default(size=max(10, 6 * width))
        for index in reversed(range(len(self))):  # the box with the best score is drawn last
            kind = int(self.class_id[index])
            colour = f"hsl({kind * 137 % 360}, 85%, 40%)"
            left, top, right, bottom = (math.floor(value) for value in self.xyxy[index])
            pen.rectangle((left, top, max(left, right), max(top, bottom)), None, colour, width)
            text = f"{self.names[kind]} {float(self.score[index]):.2f}"
            _, _, wide, high = pen.textbbox((0, 0), text, font)
            left = max(0, min(left, self.shape[1] - 1 - math.ceil(wide)))
            top = top - math.ceil(high) if top >= high else top
            pen.rectangle((left, top, left + wide, top + high), colour)
            pen.text((left, top), text, "white", font)
        return numpy.asarray(image)

    def save(self, path: PathLike, line_width: Optional[int] = None) -> None:
        """Writes the result of draw() as a picture. The suffix of `path` determines the format."""
        _save(self.draw(line_width), path)

    def crops(self) -> List[Any]:
        """The pixels of each box; an empty array for a box that is outside the picture."""
        height, width = self.shape
        return [self.image[max(0, math.floor(top)):min(height, math.ceil(bottom)),
                           max(0, math.floor(left)):min(width, math.ceil(right))]
                for left, top, right, bottom in self.xyxy.tolist()]

    def save_crops(self, folder: PathLike) -> List[pathlib.Path]:
        """Writes crops() as FOLDER/CLASS/NAME_3.jpg, as `headroom detect --save-crop` does.

        If the folder has crops of another picture with this name, writes NAME_2_3.jpg.
        """
        folders = [pathlib.Path(folder) / _name_of(name) for name in self.names]
        stem, copy = self._stem(), 1
        while any((one / f"{stem}_{number}.jpg").exists()
                  for one in folders if one.is_dir() for number in range(1, len(self) + 1)):
            copy += 1
            stem = f"{self._stem()}_{copy}"
        written = []
        for number, (crop, kind) in enumerate(zip(self.crops(), self.class_id), 1):
            if crop.size:
                written.append(folders[kind] / f"{stem}_{number}.jpg")
                written[-1].parent.mkdir(parents=True, exist_ok=True)
                _save(crop, written[-1])
        return written

    # Text.

    def _named(self) -> pathlib.Path:
        if self.path is None:
            raise HeadroomError(REQUEST, "[client] an array has no name for files: detect with "
                                "detector(array, name='street.jpg')")
        return self.path

    def _stem(self) -> str:
        named = self._named()
        return named.name if self.frame else named.stem

    def yolo_text(self, confidences: bool = False) -> str:
        """YOLO txt, a line for each box: class cx cy w h [score], as fractions of the picture."""
        height, width = self.shape
        lines = []
        for (x1, y1, x2, y2), score, kind in zip(self.xyxy, self.score, self.class_id):
            values = [float((x1 + x2) / 2) / width, float((y1 + y2) / 2) / height,
                      float(x2 - x1) / width, float(y2 - y1) / height]
            values += [float(score)] if confidences else []
            lines.append(f"{kind} " + " ".join(f"{value:.6f}" for value in values) + "\n")
        return "".join(lines)

    def write(self, path: PathLike, confidences: bool = False) -> None:
        """Writes the boxes as `headroom detect` does, to a .txt, .csv or .json (COCO results)."""
        if pathlib.Path(path).suffix == ".txt":
            pathlib.Path(path).write_text(self.yolo_text(confidences))
        else:
            write_results([self], path)

    def _csv_rows(self) -> Iterable[List[str]]:
        for box, score, kind in zip(self.xyxy.tolist(), self.score.tolist(), self.class_id):
            yield [str(self._named()), str(kind), self.names[kind], f"{score:.5f}",
                   *(f"{value:.2f}" for value in box)]

    def _coco_records(self, image_id: Union[int, str]) -> Iterable[Dict[str, Any]]:
        for (x1, y1, x2, y2), score, kind in zip(self.xyxy, self.score, self.class_id):
            box = [int(value * 1000 + type(value)(0.5)) / 1000
                   for value in (x1, y1, x2 - x1, y2 - y1)]
            yield {"image_id": image_id, "category_id": self._categories[kind], "bbox": box,
                   "score": float(score)}


def _picture(pixels: Any) -> Any:
    """Converts an RGB array to a picture of Pillow."""
    pillow = optional_package("PIL.Image", "drawing and writing pictures", "pillow")
    if pixels.shape[2] != 3:
        raise HeadroomError(REQUEST, f"[client] a picture of {pixels.shape[2]} channels cannot be "
                            "drawn or written: only RGB can")
    return pillow.fromarray(pixels)


def _save(pixels: Any, path: PathLike) -> None:
    is_jpeg = pathlib.Path(path).suffix.lower() in (".jpg", ".jpeg")
    _picture(pixels).save(path, **({"quality": 95} if is_jpeg else {}))


def _image_id(stem: str, taken: Set[Union[int, str]]) -> Union[int, str]:
    """An id that is not in `taken`: the stem, as an int if it is a number, else STEM_2, STEM_3, ..."""
    is_number = re.fullmatch(r"-?[0-9]{1,18}", stem) is not None
    wanted: Union[int, str] = int(stem) if is_number else stem
    number = 1
    while wanted in taken:
        number += 1
        wanted = f"{stem}_{number}"
    taken.add(wanted)
    return wanted


def write_results(results: Iterable[Results], path: PathLike) -> None:
    """Writes the boxes of several pictures into one file, .csv or .json (COCO results).

    The format is that of `headroom detect --save-csv` and `--save-json`.
    """
    out = io.StringIO()
    kind = pathlib.Path(path).suffix
    if kind == ".csv":
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["image", "class", "name", "confidence", "x1", "y1", "x2", "y2"])
        for one in results:
            rows.writerows(one._csv_rows())
    elif kind == ".json":
        taken: Set[Union[int, str]] = set()
        records = [json.dumps(record, separators=(",", ":"), ensure_ascii=False)
                   for one in results for record in one._coco_records(_image_id(one._stem(), taken))]
        out.write("[" + ",".join("\n" + record for record in records) + "\n]\n")
    else:
        raise HeadroomError(REQUEST, f"[client] {os.fspath(path)} ends in {kind!r}: write to a .csv "
                            "or .json, or the boxes of one picture to a .txt")
    pathlib.Path(path).write_text(out.getvalue(), encoding="utf-8", errors="surrogateescape")
