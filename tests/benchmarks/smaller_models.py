"""Compares the mAP that smaller models lose with the bytes and the time that
they save. A trained network is pruned, quantised and distilled; the result is a
table (Markdown).

usage: .deps/venv/bin/python tests/benchmarks/smaller_models.py --data DATA.yaml
           --weights trained.safetensors [--cfg yolov5n] [--img 320]
           [--share 0.3] [--epochs 8] [--processes 1] [--folder DIR]

  unchanged            the network of --weights
  pruned               after headroom prune, without further training
  pruned, fine-tuned   and trained for --epochs epochs on the data set
  pruned, distilled    and trained in the same way with the unchanged network
                       as --teacher
  int8                 the unchanged network after headroom export --int8
  pruned, distilled, int8

mAP: from headroom val on the val split; for int8 from headroom export --int8.
Bytes: the size of the ONNX file. Time: the time of one image in onnxruntime
with one thread, divided by that of the unchanged network; the median of rounds
in which all networks take turns. Peak: the predicted bytes of tensors of a
training step with --batch 16 (headroom plan). Needs onnxruntime
(tests/python_packages.txt) and a built headroom.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnxruntime

ROUNDS = 30
HEADROOM = pathlib.Path(__file__).resolve().parents[2] / "build/bin/headroom"


def run(*words):
    words = [str(HEADROOM), *map(str, words)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def validated(weights):
    out = run("val", *data, "--weights", weights, "--json", "--project", folder / "val")
    result = json.loads(out)
    return result["map50"], result["map"]


def exported(weights):
    stem = folder / (weights.stem + "_float")
    run("export", "--weights", weights, "--img", args.img, "--output", stem)
    return stem.with_suffix(".onnx")


def quantised(weights):
    stem = folder / (weights.stem + "_int8")
    out = run(
        "export", "--weights", weights, "--img", args.img, "--output", stem,
        "--int8", "--data", args.data,
    )
    scores = re.search(r"int8: +mAP50 ([0-9.]+), mAP ([0-9.]+)", out)
    return stem.with_suffix(".onnx"), tuple(map(float, scores.groups()))


def trained(name, *more):
    run(
        "train", *data, "--weights", folder / "pruned.safetensors", "--epochs",
        args.epochs, "--batch", 16, "--processes", args.processes, "--project", folder,
        "--name", name, "--noval", "--hyp", "no-augmentation", "--optimizer", "Adam",
        *("--set hyp.lr0=0.002 --set hyp.lrf=0.1 --set hyp.warmup_bias_lr=0.002".split()),
        *more,
    )
    weights = folder / (name + ".safetensors")
    (folder / name / "weights/best.safetensors").rename(weights)
    return weights


def parameters(weights):
    data = weights.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    count = 0
    for name, entry in header.items():
        if name.endswith((".weight", ".bias")):
            count += int(np.prod(entry["shape"]))
    return count


def step_peak(weights):
    out = run("plan", *data, "--weights", weights, "--batch", 16, "--json")
    return max(json.loads(out)["plan"]["predicted_peak_bytes"])


def times(files):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    sessions = [
        onnxruntime.InferenceSession(str(f), options, providers=["CPUExecutionProvider"])
        for f in files
    ]
    image = {"images": np.random.default_rng(0).random((1, 3, args.img, args.img), np.float32)}
    spent = [[] for _ in files]
    for number in range(ROUNDS + 3):
        for session, mine in zip(sessions, spent):
            start = time.perf_counter()
            session.run(None, image)
            if number >= 3:
                mine.append(time.perf_counter() - start)
    return [statistics.median(a / b for a, b in zip(mine, spent[0])) for mine in spent]


parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--weights", required=True)
parser.add_argument("--cfg", default="")
parser.add_argument("--img", type=int, default=320)
parser.add_argument("--share", type=float, default=0.3)
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--processes", type=int, default=1)
parser.add_argument("--folder")
args = parser.parse_args()
folder = pathlib.Path(args.folder or tempfile.mkdtemp(prefix="smaller_models_"))
folder.mkdir(parents=True, exist_ok=True)
data = ["--data", args.data, "--img", args.img]

# This export records the model in the weights.
cfg = ["--cfg", args.cfg] if args.cfg else []
run("export", "--weights", args.weights, *cfg, "--include", "safetensors",
    "--output", folder / "unchanged")
unchanged = folder / "unchanged.safetensors"
print(run("prune", "--weights", unchanged, "--share", args.share,
          "--output", folder / "pruned.safetensors"))
pruned = folder / "pruned.safetensors"
tuned = trained("tuned")
distilled = trained("distilled", "--teacher", unchanged)

rows = []
for name, weights in [
    ("unchanged", unchanged),
    ("pruned", pruned),
    ("pruned, fine-tuned", tuned),
    ("pruned, distilled", distilled),
]:
    rows.append((name, weights, exported(weights), validated(weights), step_peak(weights)))
for name, weights in [("int8", unchanged), ("pruned, distilled, int8", distilled)]:
    file, scores = quantised(weights)
    rows.append((name, weights, file, scores, None))

ratios = times([file for _, _, file, _, _ in rows])
print("| model | parameters | ONNX bytes | predicted peak of a step | time per image | mAP50 | mAP |")
print("|---|---|---|---|---|---|---|")
for (name, weights, file, (map50, mean), peak), ratio in zip(rows, ratios):
    size = file.stat().st_size
    share = size / rows[0][2].stat().st_size
    peak = f"{peak / 2**20:.0f} MiB" if peak else "-"
    print(
        f"| {name} | {parameters(weights):,} | {size:,} ({share:.2f}) | {peak} "
        f"| {ratio:.2f} | {map50:.3f} | {mean:.3f} |"
    )
