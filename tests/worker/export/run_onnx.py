"""Runs exported networks with onnxruntime and compares them with ours.

usage: run_onnx.py FOLDER. The folder has NAME.onnx files and reference.safetensors
with the images ("x") and the expected outputs ("decoded", "level0", ...). Prints
one line per output, "NAME output largest mean": the largest deviation, divided by
max(1, |expected|), and the mean absolute deviation. Exit 77: onnxruntime is not
installed.
"""
import json
import pathlib
import struct
import sys

try:
    import numpy as np
    import onnxruntime
except ImportError as missing:
    print(missing)
    sys.exit(77)


def read(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        part = data[8 + length + begin : 8 + length + end]
        tensors[name] = np.frombuffer(part, "<f4").reshape(entry["shape"])
    return tensors


folder = pathlib.Path(sys.argv[1])
reference = read(folder / "reference.safetensors")
for path in sorted(folder.glob("*.onnx")):
    options = onnxruntime.SessionOptions()
    # Without this option, sums of 8 bits overflow on x86 processors that lack VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"]
    )
    entry = session.get_inputs()[0]
    x = reference["x"]
    if entry.type == "tensor(float16)":
        x = x.astype(np.float16)
    outputs = session.run(None, {"images": x})
    for output, value in zip(session.get_outputs(), outputs):
        name = "decoded" if output.name == "output0" else output.name
        expected = reference[name]
        if value.shape != expected.shape:
            print(path.stem, output.name, "shape", value.shape, expected.shape)
            continue
        worst = 0.0
        if value.size:
            scale = np.maximum(1, np.abs(expected))
            worst = float((np.abs(value - expected) / scale).max())
        mean = float(np.abs(value - expected).mean()) if value.size else 0.0
        print(path.stem, output.name, worst, mean)
