"""Weights in a safetensors file, as arrays of numpy or tensors of PyTorch.

Nothing in such a file is executed. A file is read as a whole only after its
header was checked: every tensor lies inside the file, has the bytes that its
shape needs, and shares none with another.
"""

from __future__ import annotations

import json
import math
import pathlib
import struct
from typing import Any, BinaryIO, Dict, List, NamedTuple, NoReturn, Tuple

from headroom_train.errors import DATA, REQUEST, HeadroomError, optional_package
from headroom_train.program import PathLike

_MOST_HEADER_BYTES = 100_000_000
_MOST_DIMENSIONS = 64  # the limit of numpy and of the program

# Bytes of an element; the names of its type in numpy and PyTorch.
_TYPES = {
    "F64": (8, "<f8", "float64"), "F32": (4, "<f4", "float32"), "F16": (2, "<f2", "float16"),
    "BF16": (2, "<u2", "bfloat16"), "I64": (8, "<i8", "int64"), "I32": (4, "<i4", "int32"),
    "I16": (2, "<i2", "int16"), "I8": (1, "|i1", "int8"), "U8": (1, "|u1", "uint8"),
    "BOOL": (1, "|b1", "bool"),
}


class _Tensor(NamedTuple):
    name: str
    type: str
    shape: Tuple[int, ...]
    begin: int
    end: int


class _Header(NamedTuple):
    tensors: List[_Tensor]
    metadata: Dict[str, str]
    data_begin: int


class _Damage(Exception):
    """The error for an invalid safetensors file, with the reason."""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _without_doubles(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Damage("a key of the header is there twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise _Damage(f"the header has the number {name}")


def _tensor(name: str, entry: Any) -> _Tensor:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _Damage(f"tensor {name!r} lacks one of dtype, shape and data_offsets, or has more")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in _TYPES:
        raise _Damage(f"tensor {name!r} has the unknown dtype {str(kind)[:20]!r}")
    if (not isinstance(shape, list) or len(shape) > _MOST_DIMENSIONS
            or not all(map(_is_count, shape))
            or math.prod(side for side in shape if side > 0) >= 2**60):
        raise _Damage(f"tensor {name!r} has no shape that an array could have")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise _Damage(f"tensor {name!r} has no two data_offsets")
    needed = math.prod(shape) * _TYPES[kind][0]
    if offsets[1] - offsets[0] != needed:
        raise _Damage(f"tensor {name!r} of shape {shape} needs {needed} bytes and has "
                      f"{offsets[1] - offsets[0]}")
    return _Tensor(name, kind, tuple(shape), offsets[0], offsets[1])


def _read_header(file: BinaryIO, size: int) -> _Header:
    start = file.read(8)
    if len(start) < 8:
        raise _Damage(f"it has {len(start)} bytes, too few for a header's length")
    length = struct.unpack("<Q", start)[0]
    if length > min(size - 8, _MOST_HEADER_BYTES):
        raise _Damage(f"its header would have {length} bytes, and the file has {size}")
    try:
        header = json.loads(file.read(length).decode("utf-8"), object_pairs_hook=_without_doubles,
                            parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise _Damage("its header is no JSON") from None
    if not isinstance(header, dict):
        raise _Damage("its header is no JSON object")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _Damage("its __metadata__ is no object of texts")
    tensors = [_tensor(name, entry) for name, entry in header.items()]
    end = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end)):
        if tensor.begin != end:
            raise _Damage(f"tensor {tensor.name!r} begins at byte {tensor.begin}, and the one "
                          f"before it ends at byte {end}")
        end = tensor.end
    if 8 + length + end != size:
        raise _Damage(f"the tensors end at byte {8 + length + end}, and the file has {size} bytes")
    return _Header(tensors, metadata, 8 + length)


def _read(path: pathlib.Path, with_data: bool) -> Tuple[_Header, bytearray]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            header = _read_header(file, size)
            data = bytearray(size - header.data_begin if with_data else 0)
            if file.readinto(data) != len(data):
                raise _Damage("it became shorter while it was read")
            return header, data
    except OSError as error:
        raise HeadroomError(REQUEST, f"[client] {path} cannot be read ({error.strerror}): name a "
                            ".safetensors file, as weights/best.safetensors of a run") from error
    except _Damage as damage:
        raise HeadroomError(DATA, f"[client] {path} is no sound safetensors file: {damage}. Copy "
                            "it again, or take another checkpoint's weights") from None


def load_metadata(file: PathLike) -> Dict[str, str]:
    """The metadata of the weights: the model, its classes, its anchors."""
    return _read(pathlib.Path(file), with_data=False)[0].metadata


def load_weights(file: PathLike, kind: str = "numpy") -> Dict[str, Any]:
    """The tensors by their names, which are YOLOv5's.

    `kind` is "numpy", for arrays, or "torch", for tensors. numpy has no
    bfloat16: such arrays are float32, of the same values. The arrays can be
    written to, which does not change the file.
    """
    if kind not in ("numpy", "torch"):
        raise HeadroomError(REQUEST, f"[client] kind={kind!r}: write kind='numpy' or kind='torch'")
    library = optional_package(kind, f"kind='{kind}'")
    header, data = _read(pathlib.Path(file), with_data=True)
    to_array = _numpy_array if kind == "numpy" else _torch_tensor
    return {tensor.name: to_array(library, tensor, data) for tensor in header.tensors}


def _numpy_array(numpy: Any, tensor: _Tensor, data: bytearray) -> Any:
    part = memoryview(data)[tensor.begin:tensor.end]
    array = numpy.frombuffer(part, dtype=_TYPES[tensor.type][1]).reshape(tensor.shape)
    if tensor.type == "BF16":
        array = (array.astype("<u4") << 16).view("<f4")
    return array


def _torch_tensor(torch: Any, tensor: _Tensor, data: bytearray) -> Any:
    kind = getattr(torch, _TYPES[tensor.type][2])
    if tensor.begin == tensor.end:
        return torch.empty(tensor.shape, dtype=kind)
    part = memoryview(data)[tensor.begin:tensor.end]
    return torch.frombuffer(bytearray(part), dtype=kind).reshape(tensor.shape)
