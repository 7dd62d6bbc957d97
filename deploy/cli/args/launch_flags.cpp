#include "deploy/cli/args/launch_flags.h"

#include <algorithm>

namespace headroom::cli {

namespace {

std::vector<LaunchFlag> flags_of_processes() {
  return {
      {"--listen",
       "HOST:PORT",
       {"coordinator"},
       "Where to listen; port 0 takes a free one. Default 127.0.0.1:0."},
      {"--expected-workers",
       "N",
       {"coordinator"},
       "Workers of all agents together; the run starts when all are there. "
       "Default 1."},
      {"--coordinator",
       "HOST:PORT",
       {"agent", "status"},
       "Where the coordinator listens."},
      {"--coordinator",
       "HOST:PORT",
       {"train", "val"},
       "Join the run of a coordinator that is already there, as an agent. "
       "Under mpirun or srun: where rank 0's coordinator listens."},
      {"--rendezvous",
       "DIR",
       {"train", "val"},
       "Under mpirun or srun: a folder that all hosts share, in which rank 0 "
       "leaves the coordinator's address. Not needed on one host."},
      {"--log",
       "FILE",
       {"coordinator"},
       "Where decisions are written down before anybody hears of them: started "
       "again with the same flags and log, at the same address, the "
       "coordinator goes on with its run."},
      {"--metrics",
       "HOST:PORT",
       {"train", "val", "coordinator"},
       "Where the coordinator answers Prometheus (GET /metrics); a host beyond "
       "loopback needs --insecure-network, for it is plain HTTP."},
      {"--processes",
       "N",
       {"agent"},
       "Workers to start on this machine. Default 1."},
      {"--insecure-network",
       "",
       {"train", "val", "coordinator"},
       "Allow control traffic beyond loopback although it is neither encrypted "
       "nor authenticated; for private networks."},
      {"--certs",
       "DIR",
       {"train", "val", "coordinator", "agent", "status"},
       "Certificates of --init-certs: control traffic is encrypted, and both "
       "sides prove who they are. Needed beyond loopback."},
      {"--token-file",
       "FILE",
       {"train", "val", "coordinator", "agent", "status"},
       "The join token that everybody must know; default: the one in --certs "
       "DIR, if it is there."},
      {"--init-certs",
       "DIR",
       {"coordinator"},
       "Make a CA, certificates for the coordinator and for everybody else, "
       "and "
       "a join token, and end."},
      {"--cert-names",
       "NAMES",
       {"coordinator"},
       "Host names and addresses of the coordinator in its certificate, with "
       "commas between them; localhost is always one."},
      {"--show",
       "schedule",
       {"plan"},
       "Also draw what each pipeline stage does when: forward (F) and backward "
       "(B) of each micro-batch."},
      {"--cluster",
       "NAME:NODES",
       {"plan"},
       "Plan for machines that are not here: so many nodes of an instance that "
       "can be rented, for example p4d.24xlarge:2. One process per GPU."},
      {"--gpu-memory",
       "SIZE",
       {"plan"},
       "Plan for GPUs of this memory, for example 8GiB; --processes says how "
       "many there are."},
      {"--sweep",
       "AXIS=VALUES [AXIS=VALUES]",
       {"plan"},
       "A table of plans over image sizes and batches: img=416,640,1280 "
       "batch=8..64 (doubling from 8).",
       2},
      {"--write",
       "DIR",
       {"plan"},
       "Also write run.yaml and plan.json into this folder, for a worker "
       "without a coordinator: headroom-worker --standalone DIR/run.yaml."},
      {"--detections",
       "FILE",
       {"val"},
       "Score this file instead of running a model: COCO's result format, a "
       "list of {image_id, category_id, bbox, score}. No other flag of val but "
       "--ground-truth and --json counts then."},
      {"--ground-truth",
       "FILE",
       {"val"},
       "What --detections is held against: COCO's annotation format. Crowds "
       "are "
       "regions where nothing counts, as in COCO."},
      {"--ledger",
       "",
       {"status"},
       "Prove from the run directory's files, which is named before it, that "
       "every step was taken once and every sample of each epoch used once; "
       "exit 4 and the lines that contradict where it was not so."},
      {"--watch",
       "",
       {"status"},
       "Go on showing the status, once a second, until the run ends."},
      {"--json",
       "",
       {"train", "val", "status", "plan"},
       "Print the result as one JSON document on standard output."},
      {"--debug-reflection",
       "",
       {"coordinator"},
       "For debugging: answer gRPC's server reflection, so that grpcurl and "
       "the "
       "like find the calls."},
      {"--config-fd", "FD", {"coordinator"}, ""},
      {"--report-fd", "FD", {"coordinator"}, ""},
      {"--run-directory", "DIR", {"coordinator"}, ""},
      {"--saved-plan", "", {"coordinator"}, ""},
      {"--supervised", "", {"agent"}, ""},
  };
}

}  // namespace

const std::vector<LaunchFlag>& launch_flags() {
  static const std::vector<LaunchFlag> all = [] {
    std::vector<LaunchFlag> flags = flags_of_processes();
    const std::vector<LaunchFlag> tools = tool_flags();
    flags.insert(flags.end(), tools.begin(), tools.end());
    return flags;
  }();
  return all;
}

bool belongs_to(const LaunchFlag& flag, const std::string& command) {
  return std::find(flag.commands.begin(), flag.commands.end(), command) !=
         flag.commands.end();
}

std::vector<LaunchFlag> tool_flags() {
  return {
      {"--data",
       "DATA",
       {"verify", "tile"},
       "data.yaml, as train takes it (YOLO text files, COCO JSON), or a Pascal "
       "VOC folder."},
      {"--strict",
       "",
       {"verify"},
       "End with exit 4 where there is any fault, also one that training "
       "repairs."},
      {"--fix-to",
       "DIR",
       {"verify"},
       "Write a corrected copy into this new folder: the images that are kept, "
       "byte for byte, their repaired boxes as YOLO text files, and a "
       "data.yaml. The data set itself is never changed."},
      {"--single-cls",
       "",
       {"verify", "tile"},
       "All classes are one, as in training with this flag."},
      {"--all", "", {"verify"}, "Also a line for every image that is sound."},
      {"--workers",
       "N",
       {"verify", "tile"},
       "Threads that decode images. Default: all cores."},
      {"--output",
       "DIR",
       {"tile"},
       "The new folder: images, YOLO text files, and a data.yaml that train "
       "takes. It appears when all of it is there, or not at all."},
      {"--size",
       "HEIGHT [WIDTH]",
       {"tile"},
       "Of a tile, in pixels; images that are smaller stay as they are. "
       "Default 640.",
       2},
      {"--overlap",
       "X",
       {"tile"},
       "Neighbours share at least this part of a tile's side, 0 to 0.9; what "
       "is no larger than that lies whole in some tile. Default 0.2."},
      {"--min-visible",
       "X",
       {"tile"},
       "A box stays in a tile, clipped to it, where at least this part of its "
       "area is, 0 to 1. Default 0.3."},
      {"--empty-share",
       "X",
       {"tile"},
       "The part of the tiles without a box that is kept, 0 to 1, chosen by "
       "the image's name and the tile's place. Tiles with parts of boxes too "
       "small to stay are no such tiles, and are left out. Default 0.1."},
      {"--json",
       "",
       {"verify", "tile"},
       "Print the result as one JSON document on standard output."},
      {"--weights",
       "FILE",
       {"export"},
       "The weights to export: .safetensors, or a checkpoint of YOLOv5 (.pt)."},
      {"--include",
       "FORMAT [FORMAT]",
       {"export"},
       "What to write: onnx, torchscript, safetensors, or several. Default "
       "onnx.",
       3},
      {"--cfg",
       "MODEL",
       {"export"},
       "The model, where the weights do not say which it is."},
      {"--output",
       "STEM",
       {"export"},
       "Where to write: STEM.onnx. Default: beside the weights."},
      {"--img",
       "HEIGHT [WIDTH]",
       {"export"},
       "The network's input size in pixels. Default: as trained, else 640.",
       2},
      {"--imgsz", "HEIGHT [WIDTH]", {"export"}, "", 2},
      {"--img-size", "HEIGHT [WIDTH]", {"export"}, "", 2},
      {"--batch", "N", {"export"}, "Images at once. Default 1."},
      {"--batch-size", "N", {"export"}, ""},
      {"--dynamic",
       "",
       {"export"},
       "Leave batch, height and width open; sides are multiples of the largest "
       "stride, usually 32."},
      {"--half",
       "",
       {"export"},
       "Weights and maps in float16; boxes are decoded in float32."},
      {"--int8",
       "",
       {"export"},
       "Weights and maps in integers of 8 bits, their ranges from images of "
       "--data; boxes are decoded in float32. Needs --data."},
      {"--data",
       "DATA.YAML",
       {"export"},
       "With --int8: its training images calibrate, and on its val images mAP "
       "is measured in float32 and in 8 bits."},
      {"--calibration-images",
       "N",
       {"export"},
       "With --int8: so many images, spread over the training split. Default "
       "128."},
      {"--noval", "", {"export"}, "With --int8: do not measure mAP."},
      {"--threads",
       "N",
       {"export", "prune"},
       "Threads of the network. Default: all cores."},
      {"--weights",
       "FILE",
       {"prune"},
       "The weights to prune: .safetensors, or a checkpoint of YOLOv5 (.pt)."},
      {"--cfg",
       "MODEL",
       {"prune"},
       "The model, where the weights do not say which it is."},
      {"--share",
       "X",
       {"prune"},
       "The part of all channels that goes, 0.001 to 0.999. Default 0.3."},
      {"--output",
       "FILE",
       {"prune"},
       "The pruned weights; their model file goes beside them, as .yaml. "
       "Default pruned.safetensors."},
      {"--data",
       "DATA.YAML",
       {"prune"},
       "Measure mAP on its val images, before and after."},
      {"--img",
       "HEIGHT [WIDTH]",
       {"prune"},
       "With --data: the network's input size. Default: as trained, else 640.",
       2},
      {"--imgsz", "HEIGHT [WIDTH]", {"prune"}, "", 2},
      {"--img-size", "HEIGHT [WIDTH]", {"prune"}, "", 2},
      {"--batch", "N", {"prune"}, "With --data: images at once. Default 16."},
      {"--batch-size", "N", {"prune"}, ""},
      {"--raw",
       "",
       {"export"},
       "Stop before decoding: one output per level, as the loss sees it."},
      {"--nms",
       "",
       {"export"},
       "End with non-maximum suppression: rows image, x1, y1, x2, y2, score, "
       "class."},
      {"--conf-thres",
       "X",
       {"export"},
       "With --nms: the least score. Default 0.25."},
      {"--iou-thres",
       "X",
       {"export"},
       "With --nms: boxes of a class that overlap by more are one. Default "
       "0.45."},
      {"--topk-per-class",
       "N",
       {"export"},
       "With --nms: at most so many boxes of a class in an image. Default "
       "100."},
      {"--weights",
       "FILE",
       {"detect"},
       "What sees: .safetensors, or a checkpoint of YOLOv5 (.pt)."},
      {"--source",
       "PATH",
       {"detect"},
       "What to look at: an image, a video, a folder, a pattern such as "
       "'a/*.jpg', or a .txt list of images."},
      {"--cfg",
       "MODEL",
       {"detect"},
       "The model, where the weights do not say which it is."},
      {"--img",
       "HEIGHT [WIDTH]",
       {"detect"},
       "The network's input size in pixels; images keep their shape. Default: "
       "as trained, else 640.",
       2},
      {"--imgsz", "HEIGHT [WIDTH]", {"detect"}, "", 2},
      {"--img-size", "HEIGHT [WIDTH]", {"detect"}, "", 2},
      {"--resample",
       "area|bilinear",
       {"detect"},
       "How images shrink: area as in val, or bilinear as in YOLOv5, the "
       "default."},
      {"--tile",
       "HEIGHT [WIDTH]",
       {"detect"},
       "Look at tiles of so many pixels of the image instead of all of it at "
       "once, and merge what they show: for small things in large images.",
       2},
      {"--tile-overlap",
       "X",
       {"detect"},
       "With --tile: by how much of their side tiles overlap at least; as "
       "large "
       "as the largest thing sought. Default 0.2."},
      {"--conf-thres", "X", {"detect"}, "The least score. Default 0.25."},
      {"--iou-thres",
       "X",
       {"detect"},
       "Boxes of a class that overlap by more are one. Default 0.45."},
      {"--max-det",
       "N",
       {"detect"},
       "At most so many boxes in an image. Default 1000."},
      {"--classes",
       "N [N]",
       {"detect"},
       "Only these classes, by number: --classes 0 2.",
       1000},
      {"--agnostic-nms",
       "",
       {"detect"},
       "Boxes of different classes that overlap are one, too."},
      {"--save-txt",
       "",
       {"detect"},
       "labels/NAME.txt: class cx cy w h, fractions of the image."},
      {"--save-conf", "", {"detect"}, "With --save-txt: the score as well."},
      {"--save-csv", "", {"detect"}, "predictions.csv, boxes in pixels."},
      {"--save-json", "", {"detect"}, "predictions.json, a COCO result file."},
      {"--save-crop",
       "",
       {"detect"},
       "crops/CLASS/NAME_N.jpg: every box cut out."},
      {"--nosave",
       "",
       {"detect"},
       "No pictures or videos with boxes drawn into them."},
      {"--hide-labels", "", {"detect"}, "Boxes without names and scores."},
      {"--hide-conf", "", {"detect"}, "Names without scores."},
      {"--line-thickness",
       "N",
       {"detect"},
       "Of the boxes, in pixels. Default: by the image's size."},
      {"--vid-stride",
       "N",
       {"detect"},
       "Of a video every Nth picture, from the first. Default 1."},
      {"--threads", "N", {"detect"}, "Compute threads. Default 1."},
      {"--project", "DIR", {"detect"}, "Default runs/detect."},
      {"--name",
       "NAME",
       {"detect"},
       "The results' folder in it, exp2 where exp is there. Default exp."},
      {"--exist-ok",
       "",
       {"detect"},
       "Write into the folder although it is there."},
  };
}

}  // namespace headroom::cli
