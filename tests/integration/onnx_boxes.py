"""Finds boxes in 16-bit images with onnxruntime and compares them with detect's.

usage: onnx_boxes.py NETWORK.onnx IMAGES LABELS. The folder IMAGES has gray TIFFs of the
size of the network's input; each has one strip, which begins at byte 8. The folder LABELS
has the files that headroom detect --save-txt --save-conf wrote for these images. The script
scales pixels by the network's own value_range and selects boxes with the defaults of detect.
It prints the number of boxes and the largest deviation, in pixels or in confidence. Exit 77:
onnxruntime is not installed.
"""
import pathlib
import sys

try:
    import numpy as np
    import onnxruntime
except ImportError as missing:
    print(missing)
    sys.exit(77)

CONFIDENCE, OVERLAP = 0.25, 0.45


def overlap(box, others):
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:4], others[:, 2:4])
    shared = np.prod(np.clip(high - low, 0, None), axis=1)
    area = np.prod(others[:, 2:4] - others[:, :2], axis=1)
    return shared / (np.prod(box[2:4] - box[:2]) + area - shared)


def boxes_of(output):
    confidence = output[:, 4] * output[:, 5]
    output, confidence = output[confidence > CONFIDENCE], confidence[confidence > CONFIDENCE]
    centre, size = output[:, :2], output[:, 2:4]
    rows = np.concatenate([centre - size / 2, centre + size / 2, confidence[:, None]], axis=1)
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    kept = []
    while len(rows):
        kept.append(rows[0])
        rows = rows[1:][overlap(rows[0], rows[1:]) <= OVERLAP]
    return np.array(kept).reshape(-1, 5)


def labels_of(path, side):
    if not path.exists():
        return np.zeros((0, 5))
    rows = np.array([[float(word) for word in line.split()] for line in path.read_text().splitlines()])
    centre, size = rows[:, 1:3] * side, rows[:, 3:5] * side
    return np.concatenate([centre - size / 2, centre + size / 2, rows[:, 5:6]], axis=1)


def main():
    network, images, labels = map(pathlib.Path, sys.argv[1:4])
    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    low, high = map(float, session.get_modelmeta().custom_metadata_map["value_range"].split(","))
    side = session.get_inputs()[0].shape[2]
    count, worst = 0, 0.0
    for path in sorted(images.glob("*.tif")):
        pixels = np.frombuffer(path.read_bytes()[8 : 8 + 2 * side * side], "<u2").reshape(side, side)
        scaled = np.clip((pixels.astype(np.float64) - low) / (high - low), 0, 1).astype(np.float32)
        output = session.run(None, {"images": np.broadcast_to(scaled, (1, 3, side, side)).copy()})[0]
        found = boxes_of(output[0])
        found[:, :4] = np.clip(found[:, :4], 0, side)
        expected = labels_of(labels / (path.stem + ".txt"), side)
        expected = expected[np.argsort(-expected[:, 4], kind="stable")]
        if len(found) != len(expected):
            print(f"{path.name}: {len(found)} boxes, but detect has {len(expected)}")
            return 1
        count += len(found)
        if len(found):
            worst = max(worst, float(np.abs(found - expected).max()))
    print(count, worst)
    return 0


if __name__ == "__main__":
    sys.exit(main())
