"""The .pt of headroom export beside PyTorch and ultralytics' loader.

    state_dict_test.py HEADROOM HEADROOM_SHAPES

PyTorch loads it, with and without weights_only, as a dict of the tensors of
best.safetensors; a loader that expects a whole model refuses it, and ultralytics'
own model of a network without anchors takes every tensor, as
deploy/guide/weights.md says. HEADROOM_TORCH_SITE names a site-packages with
torch, and with ultralytics for the second part. Exit 77 (skipped) without torch.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

HEADROOM, SHAPES = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
sys.path[:0] = [site for site in [os.environ.get("HEADROOM_TORCH_SITE")] if site]
try:
    import torch
    torch.load  # a folder of that name is no PyTorch
except (ImportError, AttributeError) as error:
    print(f"skipped: {error}")
    sys.exit(77)


def run(folder, *words):
    subprocess.run([str(word) for word in words], cwd=folder, check=True, timeout=300)


def tensors_of(file):
    """Names and bytes of a safetensors file."""
    content = file.read_bytes()
    size, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    return {name: content[8 + size:][slice(*entry["data_offsets"])] for name, entry in header.items()}


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    run(folder, SHAPES, "my", "--train", "8", "--val", "4", "--size", "64")

    def trained(cfg):
        """The weights of a short training, and their state dict."""
        run(folder, HEADROOM, "train", "--data", "my/data.yaml", "--cfg", cfg, "--img", "64", "--batch", "4",
            "--epochs", "1", "--device", "cpu", "--noplots", "--name", cfg)
        best = folder / f"runs/train/{cfg}/weights/best.safetensors"
        run(folder, HEADROOM, "export", "--weights", best, "--include", "pt", "--output", folder / cfg)
        return best, folder / f"{cfg}.pt"

    best, file = trained("yolov5n")
    expected = tensors_of(best)
    for weights_only in (True, False):
        state = torch.load(file, map_location="cpu", weights_only=weights_only)
        assert set(state) == set(expected), set(state) ^ set(expected)
        for key, tensor in state.items():
            assert bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist()) == expected[key], key
    try:
        os.environ.update(YOLO_OFFLINE="1", YOLO_CONFIG_DIR=name)
        from ultralytics import YOLO
        from ultralytics.nn.tasks import DetectionModel
    except ImportError as error:
        print(f"without ultralytics: {error}")
        sys.exit(0)
    try:
        YOLO(file)
    except Exception as error:  # its kind differs with the version
        print(f"refused: {error}")
    else:
        sys.exit("ultralytics took a state dict: deploy/guide/weights.md says that it does not")
    # The package's yolov5n.yaml is YOLOv5u.
    for cfg, table in (("yolov5nu", "yolov5n.yaml"), ("yolov8n", "yolov8n.yaml")):
        state = torch.load(trained(cfg)[1], weights_only=True)
        model = DetectionModel(table, nc=3, verbose=False)
        print(cfg, model.load_state_dict(state))
