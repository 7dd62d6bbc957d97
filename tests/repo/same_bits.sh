#!/usr/bin/env bash
# Shows that a change of the code does not change the results that users get.
# The script runs a fixed set of short commands with one build. It prints a
# digest of every file that they write and of every text that they print. The
# output after a refactoring must equal the output before it:
#
#   bash tests/repo/same_bits.sh BASE/build >base.txt
#   bash tests/repo/same_bits.sh build >mine.txt
#   diff base.txt mine.txt
#
#   --keep DIR   also writes the digested texts into DIR, and for every file of
#                weights a table of its tensors: `diff -r` of two such folders
#                shows each difference
#
# A line is `RUN  FILE  DIGEST`; a line of steps.jsonl has a digest of its own.
# Times, addresses, process numbers and folders are replaced by words first
# (normalise.py, below). Both builds must run on the same machine, because
# processors differ in their rounding. It takes about four minutes. Without
# mpirun or tests/libheadroom_testdevice.so a line says which runs are skipped.
set -euo pipefail

# Words that were renamed in texts. Both spellings get the digest of the new
# one. Each line is `old -> new` and replaces a whole word in texts; names of
# files, and files that are not text, stay as they are. While the list has a
# line, several spaces count as one and help is one long line, because a longer
# word moves the columns of a table and the ends of lines.
renamed_words='
row -> layer
rows -> layers
Rows -> Layers
weights and their like -> model state
at work -> transient
'

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

[[ $# -eq 1 || ($# -eq 3 && $2 == --keep) ]] ||
  die "usage: same_bits.sh BUILD_DIRECTORY [--keep DIR]"
build="$(realpath "$1")"
for program in headroom headroom-worker headroom-shapes; do
  [[ -x $build/bin/$program ]] || die "there is no $build/bin/$program: build it first"
done
keep=""
if [[ $# -eq 3 ]]; then
  mkdir -p "$3"
  keep="$(realpath "$3")"
  [[ -z $(ls -A "$keep") ]] || die "$keep is not empty: name a new folder"
fi
models="$(cd "$(dirname "${BASH_SOURCE[0]}")/../support/models" && pwd)"
test_device="$build/tests/libheadroom_testdevice.so"

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/drawn"
export PATH="$build/bin:$PATH" LC_ALL=C TZ=UTC
unset HEADROOM_DEVICE_PLUGIN OMP_NUM_THREADS

# --- the inputs of the runs ---------------------------------------------------

# draw.py makes the other data sets from the drawn shapes: the same labels in
# other formats, labels and images with faults, images of five bands, a video.
cat >"$folder/drawn/draw.py" <<'PYTHON'
import glob, json, os, shutil, struct

SIDE = 64

def labels(file):
    return [(int(c), *map(float, box)) for c, *box in map(str.split, open(file))]

def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb" if isinstance(data, bytes) else "w") as file:
        file.write(data)

def corners(box):
    x, y, w, h = (value * SIDE for value in box)
    return x - w / 2, y - h / 2, w, h

def label_files(split):
    return sorted(glob.glob(f"shapes/labels/{split}/*.txt"))

def stem(path):
    return os.path.splitext(os.path.basename(path))[0]

# COCO has one file of annotations per split.
names = ["circle", "rectangle", "triangle"]
for split in ("train", "val"):
    images, boxes = [], []
    for number, file in enumerate(label_files(split)):
        images.append({"id": number, "file_name": stem(file) + ".jpg",
                       "width": SIDE, "height": SIDE})
        for c, *box in labels(file):
            x, y, w, h = corners(box)
            boxes.append({"id": len(boxes) + 1, "image_id": number, "category_id": c + 1,
                          "bbox": [x, y, w, h], "area": w * h, "iscrowd": 0})
    write(f"coco/{split}.json", json.dumps({
        "images": images, "annotations": boxes,
        "categories": [{"id": i + 1, "name": n} for i, n in enumerate(names)]}))
write("coco/data.yaml", "train: train.json\nval: val.json\n"
      "images: {train: ../shapes/images/train, val: ../shapes/images/val}\n"
      "names: [circle, rectangle, triangle]\n")

# Pascal VOC has one file of annotations per image.
for split in ("train", "val"):
    listed = []
    for file in label_files(split):
        name = f"{split}_{stem(file)}"
        listed.append(name)
        objects = ""
        for c, *box in labels(file):
            x, y, w, h = corners(box)
            objects += (f"<object><name>{names[c]}</name><difficult>0</difficult><bndbox>"
                        f"<xmin>{x + 1:.2f}</xmin><ymin>{y + 1:.2f}</ymin>"
                        f"<xmax>{x + w + 1:.2f}</xmax><ymax>{y + h + 1:.2f}</ymax>"
                        "</bndbox></object>")
        write(f"voc/Annotations/{name}.xml",
              f"<annotation><filename>{name}.jpg</filename><size><width>{SIDE}</width>"
              f"<height>{SIDE}</height><depth>3</depth></size>{objects}</annotation>\n")
        os.makedirs("voc/JPEGImages", exist_ok=True)
        shutil.copy(f"shapes/images/{split}/{stem(file)}.jpg", f"voc/JPEGImages/{name}.jpg")
    write(f"voc/ImageSets/Main/{split}.txt", "\n".join(listed) + "\n")

# Copy-paste needs polygons: each box becomes a diamond.
shutil.copytree("shapes", "outlines")
for file in glob.glob("outlines/labels/*/*.txt"):
    text = ""
    for c, x, y, w, h in labels(file):
        points = (x - w / 2, y, x, y - h / 2, x + w / 2, y, x, y + h / 2)
        text += f"{c} " + " ".join(f"{value:.6f}" for value in points) + "\n"
    write(file, text)

# This data set has one fault of each kind.
shutil.copytree("shapes", "faulty")
first = "faulty/labels/train/0000"
write(first + "0.txt", "0 0.5 0.5 0.2 0.2\n0 0.95 0.5 0.3 0.2\n")
write(first + "1.txt", "1 0.5 0.5 0.2\n1 0.5 0.5 0.3 0.3\n")
write(first + "2.txt", "2 0.5 0.5 nan 0.2\n2 1.5 0.5 0.1 0.1\n2 0.4 0.4 0.2 0.2\n")
write(first + "3.txt", "0 0.5 0.5 0.2 0.2\n0 0.5 0.5 0.2 0.2\n")
write(first + "4.txt", "0 0.5 0.5 0.0001 0.0001\n")
os.remove(first + "5.txt")
picture = open("shapes/images/train/00006.jpg", "rb").read()
write("faulty/images/train/00006.jpg", picture[: len(picture) // 2])
write("faulty/images/train/00007.jpg", b"no picture")

# The TIFFs have five bands; each class shows in a band of its own.
BANDS, WIDE = 5, 96

def tiff(samples):
    entries = [(256, 4, 1, WIDE), (257, 4, 1, WIDE), (258, 3, BANDS, 0), (259, 3, 1, 1),
               (262, 3, 1, 1), (273, 4, 1, 8), (277, 3, 1, BANDS), (278, 4, 1, WIDE),
               (279, 4, 1, len(samples)), (284, 3, 1, 1)]
    end = 8 + len(samples) + 2 + 12 * len(entries) + 4
    entries[2] = (258, 3, BANDS, end)
    directory = struct.pack("<H", len(entries))
    directory += b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return (b"II*\0" + struct.pack("<I", 8 + len(samples)) + samples + directory
            + struct.pack("<I", 0) + struct.pack("<H", 8) * BANDS)

for split, count in (("train", 8), ("val", 4)):
    for i in range(count):
        boxes = [(8 + i * 5 % 20, 10 + i * 7 % 30, 24, 30), (50 + i * 3 % 12, 20 + i, 28, 22)]
        samples = bytearray(90 + (x * 7 + y * 13 + band * 31 + i * 17) % 40
                            for y in range(WIDE) for x in range(WIDE) for band in range(BANDS))
        text = ""
        for kind, (left, top, w, h) in enumerate(boxes):
            for y in range(top, top + h):
                for x in range(left, left + w):
                    samples[(y * WIDE + x) * BANDS + 3 + kind] = 240
            text += (f"{kind} {(left + w / 2) / WIDE:.6f} {(top + h / 2) / WIDE:.6f} "
                     f"{w / WIDE:.6f} {h / WIDE:.6f}\n")
        write(f"bands/images/{split}/{split}{i}.tif", tiff(bytes(samples)))
        write(f"bands/labels/{split}/{split}{i}.txt", text)
write("bands/data.yaml", "train: images/train\nval: images/val\nnames: [fourth, fifth]\n")

# The video is Motion JPEG in AVI, and its pictures are the drawn ones.
def chunk(name, data):
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

frames = [open(f"shapes/images/train/{i:05d}.jpg", "rb").read() for i in range(4)]
stream = struct.pack("<4s4sIHHIIIIIIII4H", b"vids", b"MJPG", 0, 0, 0, 0, 1, 5, 0,
                     len(frames), 1 << 16, 0xFFFFFFFF, 0, 0, 0, SIDE, SIDE)
form = struct.pack("<IiiHH4sIiiII", 40, SIDE, SIDE, 1, 24, b"MJPG", SIDE * SIDE * 3, 0, 0, 0, 0)
header = struct.pack("<14I", 200000, 1 << 20, 0, 0, len(frames), 0, 1, 1 << 16, SIDE, SIDE,
                     0, 0, 0, 0)
lists = chunk(b"LIST", b"hdrl" + chunk(b"avih", header) + chunk(
    b"LIST", b"strl" + chunk(b"strh", stream) + chunk(b"strf", form)))
lists += chunk(b"LIST", b"movi" + b"".join(chunk(b"00dc", frame) for frame in frames))
write("clips/clip.avi", chunk(b"RIFF", b"AVI " + lists))

# These files are refused, most of them with file, line and column.
write("bad/tab.yaml", "path: .\n\ttrain: x\n")
write("bad/key.yaml", "path: .\ntrian: x\nval: x\nnames: [a]\n")
write("bad/type.yaml", "path: ../shapes\ntrain: images/train\nval: images/val\nnames: 3\n")
write("bad/few.yaml", "path: ../shapes\ntrain: images/train\nval: images/val\nnames: [a]\n")
write("bad/run.yaml", "cfg: yolov5n\nhyp:\n  lr0: fast\n")
write("bad/hyp.yaml", "lr0: 0.01\nmosiac: 1\n")
table = open("many_modules.yaml").read()
write("bad/module.yaml", table.replace("DWConv", "DWConf"))
write("bad/edge.yaml", table.replace("[[-1, 9], 1", "[[-1, 99], 1"))
PYTHON

# --- the digested files -------------------------------------------------------

# normalise.py RUN FOLDER prints the digests of the run in FOLDER. These files
# are left out, because they differ from run to run:
#
#   logs/                 the content of events.jsonl, in the order of printing
#   *.pem, *.key, token   certificates and secrets are drawn at random
#   step.png, report.html they show times
#   checkpoints           all but the newest, and their number: a checkpoint is
#                         skipped while the one before is still being written
#
# SKIPPED and REPLACED name the lines and words that differ within a text.
cat >"$folder/normalise.py" <<'PYTHON'
import hashlib, json, os, re, socket, struct, sys

run, folder = sys.argv[1:3]
build, keep = os.environ["SAME_BITS_BUILD"], os.environ["SAME_BITS_KEEP"]
host = re.escape(socket.gethostname())

LEFT_OUT = re.compile(r"(^|/)logs/|(^|/)(step\.png|report\.html)$|\.(pem|key)$|(^|/)token$")
SKIPPED = re.compile("|".join([
    r"^epoch \d+/\d+  ",  # printed only if an epoch took long enough
    r'"name":"resident beyond the peak"',  # depends on the system's pages, in a memory trace
]))
PATHS = [(re.compile(re.escape(path) + r"(?![\w.-])"), word) for path, word in [
    (folder, "RUN"), (os.path.dirname(folder), "FOLDER"), (build, "BUILD")]]
NUMBER = r"-?[0-9.]+(?:e[-+]?[0-9]+)?"
REPLACED = [(re.compile(pattern), word) for pattern, word in [
    # Keys of JSON.
    (rf'("(?:seconds|wall_seconds|images_per_second|ts|dur)": ?){NUMBER}', r"\1TIME"),
    (r'("time": ?)"[^"]*"', r'\1"TIME"'),
    (rf'("hostname": ?)"{host}"', r'\1"HOST"'),
    (r'("free_bytes": ?)\d+(,"limit_bytes": ?null)', r"\1BYTES\2"),  # the free memory of the machine
    (r'("checkpoints": ?\{)[^}]*', r"\1LEFT OUT"),
    (r'("skipped": ?)\d+', r"\1COUNT"),
    # Words.
    (r"(?m)^\d\d:\d\d:\d\d (info|warning|error) ", r"TIME \1 "),
    (r"(?m)\d+ ms( per image|$)", r"TIME\1"),
    (rf"{NUMBER} images/s", "RATE images/s"),
    (rf"(?<!\w){host}-\d+-\d+\b", "WORKER"),
    (rf"\bon {host}\b", "on HOST"),
    (r"\b\d+\.\d+\.\d+\.\d+:\d+\b", "ADDRESS"),
    (r"\?token=\w+", "?token=TOKEN"),
    (r"(resident beyond the counted peak) [0-9.]+ \w+", r"\1 BYTES"),
    (r"[0-9.]+ \w+ of the machine's memory free", "BYTES of the machine's memory free"),
]]
renamed = [line.split("->") for line in os.environ["SAME_BITS_RENAMED"].splitlines()
           if line.strip()]
renamed = [(re.compile(rf"\b{re.escape(old.strip())}\b"), new.strip()) for old, new in renamed]

def with_words(text, replaced):
    for pattern, word in replaced:
        text = pattern.sub(word, text)
    return text

# A saved plan contains its reasons as text, so a longer word changes the digest and the bytes of a checkpoint.
OF_REASONS = [(re.compile(r'("manifest_xxh3_128": ?)"\w+"'), r"\1DIGEST"),
              (re.compile(r'("event":"checkpoint".*"bytes":)\d+'), r"\1BYTES")]

def respelled(text):
    text = with_words(text, renamed + (OF_REASONS if renamed else []))
    if renamed and run.startswith("help"):
        return " ".join(text.split())
    return re.sub(r"(?<=\S) {2,}", " ", text) if renamed else text

def digest(name, data):
    print(f"{run}  {name}  {hashlib.sha256(data).hexdigest()[:16]}")

def kept(name, text):
    if not keep:
        return
    path = os.path.join(keep, run, name + ".txt")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)

def put_tensors(name, data):
    """Tensors and the header above them, which may hold the path of a model."""
    size = struct.unpack("<Q", data[:8])[0]
    header = with_words(data[8:8 + size].decode().rstrip(), PATHS)
    tensors = json.loads(header)
    table = [json.dumps(tensors.pop("__metadata__", {}))]
    for tensor, about in sorted(tensors.items()):
        begin, end = about["data_offsets"]
        content = hashlib.sha256(data[8 + size + begin:8 + size + end]).hexdigest()
        table.append(f"{tensor} {about['dtype']} {about['shape']} {content[:16]}")
    kept(name, "\n".join(table) + "\n")
    digest(name, header.encode() + data[8 + size:])

def tensorboard_records(data):
    """The records of an event file without their time and checksums."""
    records = b""
    while data:
        size = struct.unpack("<Q", data[:8])[0]
        record = data[12:12 + size]
        assert record[0] == 9  # the field wall_time, 8 bytes
        records += struct.pack("<Q", size) + record[9:]
        data = data[16 + size:]
    return records

def put_text(name, text):
    base = os.path.basename(name)
    lines = with_words(text, PATHS + REPLACED).splitlines(keepends=True)
    lines = [line for line in lines if not SKIPPED.search(line)]
    if base == "events.jsonl":
        earlier = re.compile(r'"event":"checkpoint","step":(?!%d,)' % newest_step)
        lines = [line for line in lines if not earlier.search(line)]
    lines = respelled("".join(lines)).splitlines(keepends=True)
    if base == "events.jsonl" or (base == "stderr" and is_run):
        lines.sort()  # several processes write these lines, in any order
    kept(name, "".join(lines))
    if base == "steps.jsonl":
        for number, line in enumerate(lines):
            digest(f"{name}:{number}", line.encode())
    else:
        digest(name, "".join(lines).encode())

def put(name):
    with open(os.path.join(folder, name), "rb") as file:
        data = file.read()
    if name.endswith(".safetensors"):
        return put_tensors(name, data)
    if "events.out.tfevents" in name:
        return digest(re.sub(r"tfevents\..*", "tfevents", name), tensorboard_records(data))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return digest(name, data)
    if "\0" in text:
        return digest(name, data)
    return put_text(name, text)

def step_of(name):
    found = re.search(r"/checkpoints/step-(\d+)/", name)
    return int(found.group(1)) if found else None

names = sorted(os.path.relpath(os.path.join(where, file), folder)
               for where, _, files in os.walk(folder) for file in files)
is_run = any(name.endswith("events.jsonl") for name in names)
newest_step = max([step_of(name) or 0 for name in names])
for name in names:
    if not LEFT_OUT.search(name) and step_of(name) in (None, newest_step):
        put(name)
PYTHON
export SAME_BITS_BUILD="$build" SAME_BITS_KEEP="$keep" SAME_BITS_RENAMED="$renamed_words"

# --- running ------------------------------------------------------------------

# run NAME COMMAND... runs the command in a folder of its own, from which the
# files of another run are ../OTHER/. Checkpoints are large, so they are deleted
# afterwards unless `checkpoints=kept` precedes the call.
run() {
  local name="$1" status=0 started="$EPOCHREALTIME"
  shift
  mkdir -p "$folder/$name"
  (cd "$folder/$name" &&
    exec timeout --foreground -k 10 120 "$@" >stdout 2>stderr </dev/null) || status=$?
  printf '%s\n' "$status" >"$folder/$name/exit_code"
  say "$(awk -v name="$name" -v from="$started" -v to="$EPOCHREALTIME" -v status="$status" \
    'BEGIN {printf "%s: %.1f s, exit %d", name, to - from, status}')"
  python3 "$folder/normalise.py" "$name" "$folder/$name"
  if [[ ${checkpoints:-} != kept ]]; then
    find "$folder/$name" -type d -name checkpoints -exec rm -rf {} +
  fi
}

# run_on OTHER NAME COMMAND... starts from a copy of the files of the run OTHER.
run_on() {
  local from="$1" name="$2"
  shift
  mkdir -p "$folder/$name"
  cp -r "$folder/$from/runs" "$folder/$name/"
  run "$@"
}

skip() {
  say "$1: skipped, $2"
  printf '%s  skipped  %s\n' "$1" "$2"
}

size=(--img 64 --batch 8 --threads 1 --workers 1)
plain=(headroom train --data ../drawn/shapes/data.yaml --cfg yolov5n "${size[@]}" --seed 0 --json)
train=("${plain[@]}" --device cpu --noplots)
short=("${train[@]}" --noval --max-steps 3)
float64=("${short[@]}" --precision fp64)
weights=../float32/runs/train/exp/weights/best.safetensors

say "drawing into $folder"
cp "$models"/*.yaml "$folder/drawn"
(cd "$folder/drawn" && headroom-shapes shapes --train 16 --val 8 --size 64 &&
  headroom-shapes large --train 4 --val 2 --size 200 --seed 1 && python3 draw.py) >&2

# Precisions, resumption and layouts.
checkpoints=kept run float32 "${train[@]}" --epochs 2
run_on float32 resumed headroom train --resume runs/train/exp --epochs 3 --json
run_on float32 resumed-pipeline headroom train --resume runs/train/exp --epochs 3 --json \
  --layout pipeline=2
run_on float32 damaged bash -c "truncate -s -1 runs/train/exp/checkpoints/step-4/state.safetensors
  headroom train --resume runs/train/exp --epochs 3 --json"
rm -rf "$folder/float32/runs/train/exp/checkpoints"
run ledger headroom status ../float32/runs/train/exp --ledger
run ledger-json headroom status ../float32/runs/train/exp --ledger --json
run float64 "${float64[@]}"
run bfloat16 "${train[@]}" --epochs 2 --precision bf16
run float16 "${short[@]}" --precision fp16
run data "${train[@]}" --epochs 2 --layout data=2
run pipeline "${train[@]}" --epochs 2 --layout pipeline=2 --micro-batch 4 --bn-group 4
run spatial "${train[@]}" --epochs 2 --layout spatial=2
run zero1 "${short[@]}" --layout data=2 --zero 1
run zero2 "${float64[@]}" --layout data=2 --zero 2
run zero3 "${train[@]}" --epochs 2 --layout data=2 --zero 3
run data-pipeline "${float64[@]}" --layout data=2,pipeline=2 --zero 1 --micro-batch 2 \
  --bn-group 2 --activations recompute
run data-spatial "${short[@]}" --layout data=2,spatial=2 --zero 3 --activations lean
run micro-batches "${short[@]}" --micro-batch 2 --bn-group 2
run sync-bn "${float64[@]}" --layout data=2 --sync-bn
run synthetic headroom train --synthetic-input --cfg yolov5n "${size[@]}" --seed 0 --json \
  --device cpu --noplots --noval --max-steps 3

# Memory. "${short[@]/#64/160}" is `short` with --img 160.
run lean "${short[@]}" --activations lean
run recompute "${short[@]}" --activations recompute
run offload "${short[@]}" --activations offload
run mixture "${short[@]/#64/160}" --memory-limit 70MiB
run ballast "${short[@]}" --activations keep --memory-limit 55MiB --inject \
  "ballast@rank=0,step=1,bytes=12000000"
run memory-trace "${short[@]}" --layout data=2 --memory-trace step.json

# Faults that are injected.
run oom "${train[@]}" --epochs 2 --layout data=2 --activations keep --inject \
  "oom@rank=0,step=1,allocation=300;oom@rank=0,step=1,allocation=40;\
oom@rank=1,step=2,allocation=100;oom@rank=0,step=2,allocation=2,phase=validation;\
oom@rank=0,step=2,allocation=1,phase=loader;oom@rank=1,step=3,allocation=1,phase=vote"
run another-plan "${float64[@]/#64/160}" --processes 2 --inject \
  "oom@rank=1,step=1,allocation=60;oom@rank=1,step=1,allocation=100;\
oom@rank=1,step=1,allocation=140;oom@rank=1,step=1,allocation=180;oom@rank=1,step=1,allocation=220"
run smaller-micro-batch "${float64[@]}" --layout data=2 --bn-group 2 --activations keep --inject \
  "oom@rank=1,step=1,allocation=100;oom@rank=1,step=1,allocation=250;\
oom@rank=1,step=1,allocation=400;oom@rank=1,step=1,allocation=550;oom@rank=1,step=1,allocation=700"
run killed "${train[@]}" --epochs 2 --layout data=2 --inject "kill@rank=1,step=3,phase=backward"
run killed-zero3 "${float64[@]}" --layout data=2 --zero 3 --inject "kill@rank=1,step=2,phase=forward"
run killed-stage "${float64[@]}" --layout pipeline=2 --inject "kill@rank=0,step=1,phase=vote"
run nan "${short[@]}" --set skip_non_finite=true --inject "nan@rank=0,step=1"
run nan-stops "${short[@]}" --inject "nan@rank=0,step=1"

# Data and options.
run faulty-data "${train[@]/shapes/faulty}" --epochs 1
run coco "${train[@]/shapes/coco}" --epochs 1
run voc "${train[@]/shapes\/data.yaml/voc}" --epochs 1
run multi-scale "${train[@]/#64/96}" --multi-scale --epochs 2 --layout data=2
run image-weights "${train[@]}" --image-weights --epochs 3
large=("${train[@]/shapes/large}")
run rect "${large[@]/#8/2}" --rect --epochs 1
run random-crop "${large[@]/#8/2}" --noval --max-steps 3 --random-crop
run options "${train[@]}" --epochs 2 --optimizer AdamW --cos-lr --label-smoothing 0.1 --freeze 3 \
  --single-cls --close-mosaic 1 --save-period 1 --set checkpoint_every_steps=1
run augmentation "${short[@]/shapes/outlines}" --hyp scratch-high \
  --set hyp.copy_paste=0.5 --set hyp.mixup=0.5 --set hyp.mosaic9=0.5 --set hyp.degrees=10 \
  --set hyp.shear=5 --set hyp.perspective=0.0005 --set hyp.flipud=0.5 --set hyp.blur=0.5 \
  --set hyp.median_blur=0.5 --set hyp.gray=0.5 --set hyp.clahe=0.5 --set hyp.fl_gamma=1.5
run anchors "${train[@]}" --epochs 1 --set hyp.anchor_t=1.2
run teacher "${short[@]}" --teacher "$weights"
run pictures "${plain[@]}" --device cpu --epochs 1
run many-modules "${short[@]/yolov5n/../drawn/many_modules.yaml}"
bands=("${train[@]/shapes/bands}") && bands=("${bands[@]/#8/4}")
run bands "${bands[@]/yolov5n/../drawn/five_bands.yaml}" --epochs 1
run gray "${short[@]/yolov5n/../drawn/gray.yaml}" --layout spatial=2
for model in yolov5s-ghost yolov5s-mobilenetv3 yolov5s-shufflenetv2 yolov5s-p2; do
  run "$model" "${train[@]/yolov5n/$model}" --noval --max-steps 1
done

# Certificates, no coordinator, mpirun.
run certificates headroom coordinator --init-certs certs --cert-names localhost
run certified "${short[@]}" --layout data=2 --certs ../certificates/certs
run standalone-asked headroom plan --data ../drawn/shapes/data.yaml --cfg yolov5n "${size[@]}" \
  --seed 0 --noplots --processes 1 --epochs 1 --write asked
run standalone headroom-worker --standalone ../standalone-asked/asked/run.yaml \
  --run-directory alone
if command -v mpirun >/dev/null; then
  mpirun=(mpirun --allow-run-as-root --oversubscribe -np 2 --bind-to none)
  run mpirun-gloo "${mpirun[@]}" "${train[@]}" --epochs 1 --processes 1
  run mpirun-mpi "${mpirun[@]}" "${short[@]}" --processes 1 --backend mpi
else
  skip mpirun "there is no mpirun"
fi

# The test device replaces a GPU.
if [[ -f $test_device ]]; then
  export HEADROOM_DEVICE_PLUGIN="$test_device"
  device=("${plain[@]}" --noplots --precision fp64)
  run device "${device[@]}" --epochs 2 --device 0
  run device-oom "${device[@]}" --max-steps 3 --noval --device 0 --activations keep --inject \
    "oom@rank=0,step=1,allocation=40;oom@rank=0,step=1,allocation=3"
  run device-augment "${device[@]}" --max-steps 3 --noval --device 0 --augment-on device
  run device-zero3 "${device[@]}" --max-steps 3 --noval --device 0,1 --layout data=2 --zero 3 \
    --backend nccl
  run device-graphs "${device[@]}" --max-steps 3 --noval --device 0,1 --layout data=2 \
    --backend gloo --bn-group 4 --cuda-graphs
  run device-val headroom val --data ../drawn/shapes/data.yaml --weights "$weights" \
    "${size[@]}" --device 0 --noplots --json
  unset HEADROOM_DEVICE_PLUGIN
else
  skip device "there is no tests/libheadroom_testdevice.so"
fi

# Commands that use a network.
val=(headroom val --weights "$weights" "${size[@]}" --device cpu --json)
run val "${val[@]}" --data ../drawn/shapes/data.yaml --save-json --save-txt --save-conf
run val-data "${val[@]}" --data ../drawn/coco/data.yaml --layout data=2 --noplots
run val-float64 "${val[@]}" --data ../drawn/shapes/data.yaml --noplots --precision fp64
run val-tile "${val[@]}" --data ../drawn/large/data.yaml --noplots --tile 64 --tile-overlap 0.25
run val-text headroom val --weights "$weights" "${size[@]}" --data ../drawn/shapes/data.yaml \
  --noplots
run val-coco "${val[@]}" --data ../drawn/coco/data.yaml --noplots --save-json
run score headroom val --detections ../val-coco/runs/val/exp/predictions.json \
  --ground-truth ../drawn/coco/val.json --json
detect=(headroom detect --weights "$weights" --img 64 --conf-thres 0.003 --max-det 5)
run detect "${detect[@]}" --source ../drawn/shapes/images/val --save-txt --save-conf --save-csv \
  --save-json --save-crop
run detect-tile "${detect[@]}" --source ../drawn/large/images/val --tile 64 --agnostic-nms \
  --save-txt
run detect-video "${detect[@]}" --source ../drawn/clips --save-txt

# Commands that write a network in another form.
export_=(headroom export --weights "$weights" --img 64 --threads 1)
run export "${export_[@]}" --include onnx torchscript safetensors --output net
run export-dynamic "${export_[@]}" --dynamic --nms --output net
run export-half "${export_[@]}" --half --raw --output net
run export-int8 "${export_[@]}" --int8 --data ../drawn/shapes/data.yaml --output net
run export-modules headroom export --weights \
  ../many-modules/runs/train/exp/weights/last.safetensors --img 64 --threads 1 \
  --include onnx torchscript --output net
run prune headroom prune --weights "$weights" --share 0.3 --data ../drawn/shapes/data.yaml \
  --img 64 --threads 1
run pruned "${short[@]}" --weights ../prune/pruned.safetensors

# Commands on data sets.
run tile headroom tile --data ../drawn/large/data.yaml --output tiles --size 96 --workers 1 --json
for data in faulty/data.yaml coco/data.yaml voc; do
  run "verify-${data%%/*}" headroom verify --data "../drawn/$data" --workers 1 --json \
    --fix-to fixed
done
run verify-text headroom verify --data ../drawn/faulty/data.yaml --workers 1 --all --strict

# Plans.
plan=(headroom plan --threads 1)
run plan "${plan[@]}" --cfg yolov5s --batch 64
run plan-limit "${plan[@]}" --cfg yolov5s --batch 64 --memory-limit 2GiB --json
run plan-largest "${plan[@]}" --cfg yolov5s --batch -1 --memory-limit 8GiB --json
run plan-data "${plan[@]}" --data ../drawn/shapes/data.yaml --cfg yolov5n --batch 16 \
  --memory-limit 1GiB --json
run plan-schedule "${plan[@]}" --cfg yolov5m --batch 16 --bn-group 4 --layout pipeline=2 \
  --show schedule
run plan-cluster "${plan[@]}" --cluster g5.12xlarge:1 --cfg yolov5m --batch 128 --json
run plan-cluster-text "${plan[@]}" --cluster p4d.24xlarge:2 --cfg yolov5l6 --img 1280 --batch 256
run plan-image "${plan[@]}" --cfg yolov5n --img 4000 6000 --batch 1 --processes 4 \
  --memory-limit 2GiB --json
run plan-sweep "${plan[@]}" --gpu-memory 8GiB --processes 4 --cfg yolov5s --json \
  --sweep img=416,640,1280 batch=8..64
run plan-sweep-text "${plan[@]}" --memory-limit 8GiB --sweep img=416,640 batch=8..32
run plan-refused "${plan[@]}" --cfg yolov5s --batch 64 --memory-limit 2GiB --activations keep \
  --micro-batch 64
run plan-refused-json "${plan[@]}" --cfg yolov5x --batch 16 --memory-limit 100MiB --json
for model in yolov5x yolov5n6 yolov5s-p7 yolov5s-ghost yolov5s-mobilenetv3 yolov5s-shufflenetv2; do
  run "plan-$model" "${plan[@]}" --cfg "$model" --batch 8 --zero 2 --layout data=2,pipeline=2 \
    --precision bf16 --json
done

# Help and refusals.
run help headroom --help
run help-worker headroom-worker --help
for command in train plan val verify tile coordinator agent detect export prune status; do
  run "help-$command" headroom "$command" --help
done
for file in tab key type few; do
  run "refused-$file" "${train[@]}" --data "../drawn/bad/$file.yaml"
done
for file in module edge; do
  run "refused-$file" "${plan[@]}" --cfg "../drawn/bad/$file.yaml"
done
run refused-run "${plan[@]}" --config ../drawn/bad/run.yaml
run refused-hyp "${plan[@]}" --cfg yolov5n --hyp ../drawn/bad/hyp.yaml
run refused-flag "${train[@]}" --batchsize 4
run refused-absent-flag "${train[@]}" --evolve
run refused-set "${train[@]}" --set hyp.lr=0.1
run refused-range "${train[@]}" --set hyp.lr0=-1
run refused-layout "${train[@]}" --processes 3 --layout data=2
run refused-spatial "${train[@]}" --layout spatial=8
run refused-micro-batch "${train[@]}" --micro-batch 3 --bn-group 4
run refused-fault "${train[@]}" --inject "oom@rank=0,stp=1"
run refused-weights "${train[@]}" --weights ../drawn/shapes/data.yaml
run refused-data "${train[@]}" --data nothing.yaml
run refused-resume headroom train --resume nothing
run refused-detect "${detect[@]}" --source nothing.jpg
run refused-export "${export_[@]}" --include coreml
say "all runs took $SECONDS s"
