#include "configs/command_flags.h"

#include <algorithm>
#include <utility>

#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

using KnownTo = CommandFlag::KnownTo;

CommandFlag flag(std::vector<std::string> spellings,
                 std::vector<std::string> commands, std::string description,
                 CommandFlagRules rules = {}) {
  if (!rules.default_value.empty()) {
    description += " The default is " + rules.default_value + ".";
  }
  if (!rules.choices.empty()) rules.value_name = joined(rules.choices, "|");
  return {std::move(rules), std::move(spellings), std::move(commands),
          std::move(description)};
}

std::vector<CommandFlag> flags_of_processes() {
  return {
      flag({"--listen"}, {"coordinator", "page"},
           "The command listens at this address; port 0 takes a free one.",
           {.value_name = "HOST:PORT", .default_value = "127.0.0.1:0"}),
      flag({"--expected-workers"}, {"coordinator"},
           "The run starts when this many workers, of all agents together, "
           "are there.",
           {.value_name = "N", .default_value = "1"}),
      flag({"--coordinator"}, {"agent", "status"},
           "The coordinator listens at this address.",
           {.value_name = "HOST:PORT"}),
      flag({"--coordinator"}, {"train", "val"},
           "This machine joins the run of a coordinator that is already "
           "there, as an agent. Under a launcher, rank 0's coordinator listens "
           "at this address; :PORT is a port of the machine that the launcher "
           "names.",
           {.value_name = "HOST:PORT", .known_to = KnownTo::kHeadroom}),
      flag({"--rendezvous"}, {"train", "val"},
           "Under a launcher that names no machine, as mpirun or srun, rank 0 "
           "leaves the coordinator's address in this folder, which all hosts "
           "share. One host does not need it.",
           {.value_name = "DIR", .known_to = KnownTo::kHeadroom}),
      flag({"--log"}, {"coordinator"},
           "The coordinator writes decisions to this file before anybody "
           "hears of them. Started again with the same flags and log, at the "
           "same address, it goes on with its run.",
           {.value_name = "FILE"}),
      flag({"--metrics"}, {"train", "val", "coordinator"},
           "The coordinator answers Prometheus at this address (GET "
           "/metrics). A host beyond loopback needs --insecure-network, "
           "because it is plain HTTP.",
           {.value_name = "HOST:PORT", .known_to = KnownTo::kHeadroom}),
      flag({"--page"}, {"train"},
           "The run's page is served at this address, or nowhere (off). A host "
           "beyond loopback needs --certs.",
           {.value_name = "HOST:PORT|off",
            .default_value = "127.0.0.1:0",
            .known_to = KnownTo::kHeadroom}),
      flag({"--page-controls"}, {"train"},
           "The page has a button that stops the run, as Ctrl-C does: after a "
           "step, with its state saved. Without the flag the page only shows.",
           {.known_to = KnownTo::kHeadroom}),
      flag({"--page"}, {"coordinator"},
           "The run's page is served at this address. Without the flag there "
           "is none.",
           {.value_name = "HOST:PORT|off", .known_to = KnownTo::kHeadroom}),
      flag({"--output"}, {"report"},
           "The report is written to this file. The default is report.html, in "
           "the run directory or, for several runs, in the present folder.",
           {.value_name = "FILE", .known_to = KnownTo::kHeadroom}),
      flag({"--exist-ok"}, {"report"},
           "The file is replaced although it is no report.",
           {.known_to = KnownTo::kHeadroom}),
      flag({"--mlflow"}, {"train"},
           "The MLflow server at this address gets parameters, metrics and the "
           "best weights; what it misses follows. Credentials are taken from "
           "MLFLOW_TRACKING_TOKEN, or from _USERNAME and _PASSWORD.",
           {.value_name = "URI", .known_to = KnownTo::kHeadroom}),
      flag({"--mlflow-experiment"}, {"train"},
           "With --mlflow, the run belongs to this experiment.",
           {.value_name = "NAME",
            .default_value = "headroom",
            .known_to = KnownTo::kHeadroom}),
      flag({"--webhook"}, {"train"},
           "This address gets a JSON object by POST for the run's end, lost "
           "processes and out-of-memory retries that change the plan.",
           {.value_name = "URL", .known_to = KnownTo::kHeadroom}),
      flag({"--processes"}, {"agent"},
           "The agent starts this many workers on this machine.",
           {.value_name = "N", .default_value = "1"}),
      flag({"--spot"}, {"train", "agent"},
           "A spot machine's metadata service is asked every 5 s whether the "
           "machine is taken away; its workers then leave at a committed step. "
           "auto asks on Amazon EC2 alone.",
           {.value_name = "auto|off|URL",
            .default_value = "auto",
            .known_to = KnownTo::kHeadroom}),
      flag({"--insecure-network"},
           {"train", "val", "coordinator", "agent", "status", "page"},
           "Control traffic may leave the machine although it is neither "
           "encrypted nor authenticated; this is for private networks.",
           {.known_to = KnownTo::kHeadroom}),
      flag({"--certs"},
           {"train", "val", "coordinator", "agent", "status", "page"},
           "This folder holds the certificates of --init-certs: control "
           "traffic is encrypted, and both sides prove who they are. It is "
           "needed beyond loopback (this machine's own address), with a "
           "token.",
           {.value_name = "DIR", .known_to = KnownTo::kHeadroom}),
      flag(
          {"--interface"}, {"train", "val", "agent"},
          "Tensors go over this network interface of each machine, for example "
          "eth1. The default is the one towards the coordinator.",
          {.value_name = "NAME", .known_to = KnownTo::kHeadroom}),
      flag({"--token-file"},
           {"train", "val", "coordinator", "agent", "status", "page"},
           "This file holds the join token, a secret that everybody must "
           "know. The default is that in --certs DIR, or the run's own.",
           {.value_name = "FILE", .known_to = KnownTo::kHeadroom}),
      flag({"--init-certs"}, {"coordinator"},
           "The command writes a certificate authority, certificates for the "
           "coordinator and for everybody else, and a join token into this "
           "folder, and ends.",
           {.value_name = "DIR"}),
      flag({"--cert-names"}, {"coordinator"},
           "The coordinator's certificate holds these host names and "
           "addresses, with commas between them, and always localhost.",
           {.value_name = "NAMES"}),
      flag({"--show"}, {"plan"},
           "The answer also draws what each pipeline stage does when: "
           "forward (F) and backward (B) of each micro-batch.",
           {.value_name = "schedule"}),
      flag({"--details"}, {"plan"},
           "The answer also has the tables: parts of a step, memory of each "
           "stage and phase, layers, samples, other layouts."),
      flag({"--cluster"}, {"plan"},
           "The plan is for machines that are not here: some nodes of an "
           "instance that can be rented, for example p4d.24xlarge:2, with "
           "one process per GPU.",
           {.value_name = "NAME:NODES"}),
      flag({"--gpu"}, {"plan"},
           "The plan is for cards of one kind, here or not, for example "
           "\"RTX 4090:2\" for two.",
           {.value_name = "CARD[:N]"}),
      flag({"--gpu-memory"}, {"plan"},
           "The plan is for GPUs with this much memory, for example 8GiB; "
           "--processes says how many there are.",
           {.value_name = "SIZE"}),
      flag({"--images-per-second"}, {"plan"},
           "The forecast of a step counts on this rate of one card or process "
           "alone. The default is assumed.",
           {.value_name = "N"}),
      flag({"--network"}, {"plan"},
           "The forecast counts on this network, or on what a run measured, by "
           "its folder.",
           {.value_name = "GBIT[,MS]|RUN"}),
      flag({"--machines"}, {"plan"},
           "The forecast spreads processes over this many machines.",
           {.value_name = "N"}),
      flag({"--prices"}, {"plan"},
           "Rank the machines of a price list that the run fits into by the "
           "price of an epoch. Lines: NAME: PRICE of an hour, or NAME: "
           "{price: P, images_per_second: N}; CSV: NAME,PRICE,N.",
           {.value_name = "FILE"}),
      flag({"--images"}, {"plan"},
           "With --prices and without --data: images of an epoch.",
           {.value_name = "N"}),
      flag({"--sweep"}, {"plan"},
           "The answer is a table of plans over image sizes and batches: "
           "img=416,640,1280 batch=8..64 (doubling from 8).",
           {.value_name = "AXIS=VALUES [AXIS=VALUES]", .most_values = 2}),
      flag({"--write"}, {"plan"},
           "The command also writes run.yaml and plan.json into this folder, "
           "for a worker without a coordinator: headroom-worker --standalone "
           "DIR/run.yaml.",
           {.value_name = "DIR"}),
      flag({"--report"}, {"plan"},
           "The command also writes the plan as one HTML file, to keep or to "
           "mail: the memory of each rank, of the first 16 layer by layer, "
           "the schedule, and what other layouts would cost. An older report "
           "is replaced.",
           {.value_name = "FILE"}),
      flag({"--detections"}, {"val"},
           "This file is scored instead of running a model. It has COCO's "
           "result format, a list of {image_id, category_id, bbox, score}. "
           "No other flag of val counts then but --ground-truth and --json.",
           {.value_name = "FILE", .is_required = true}),
      flag({"--ground-truth"}, {"val"},
           "The boxes of --detections are compared with this file, in COCO's "
           "annotation format. Crowds are regions where nothing counts, as "
           "in COCO.",
           {.value_name = "FILE", .is_required = true}),
      flag({"--ledger"}, {"status"},
           "The command proves from the files of the run directory, which is "
           "named before it, that every step was taken once and every sample "
           "of each epoch used once. Where it was not so, it prints the "
           "lines that contradict, and its exit code is 4."),
      flag({"--watch"}, {"status"},
           "The command follows the run, as its page does, until it ends."),
      flag({"--json"}, {"train", "val", "status", "plan"},
           "The command prints its result as one JSON document on standard "
           "output."),
      flag({"--debug-reflection"}, {"coordinator"},
           "The coordinator answers gRPC's server reflection, so that "
           "debugging tools such as grpcurl find its calls."),
      flag({"--config-fd"}, {"coordinator"},
           "This file descriptor holds run.yaml.",
           {.value_name = "FD", .is_internal = true}),
      flag({"--report-fd"}, {"coordinator"},
           "This file descriptor takes the address.",
           {.value_name = "FD", .is_internal = true}),
      flag({"--run-directory"}, {"coordinator"}, "The run has this folder.",
           {.value_name = "DIR", .is_internal = true}),
      flag({"--saved-plan"}, {"coordinator"},
           "The coordinator takes the folder's plan.", {.is_internal = true}),
      flag({"--successor"}, {"coordinator"}, "An earlier coordinator is gone.",
           {.is_internal = true}),
      flag({"--supervised"}, {"agent"},
           "Another process tells how the agent ended.", {.is_internal = true}),
  };
}

// verify, tile, export, prune and detect.
std::vector<CommandFlag> flags_of_tools() {
  return {
      flag({"--data"}, {"verify", "tile", "pack"},
           "The data set is a data.yaml, as train takes it (YOLO text files, "
           "COCO JSON), or a Pascal VOC folder.",
           {.value_name = "DATA", .is_required = true}),
      flag({"--strict"}, {"verify"},
           "Any fault gives exit code 4, also one that training survives."),
      flag({"--fix-to"}, {"verify"},
           "The command writes a corrected copy into this new folder: the "
           "images that are kept, byte for byte, their valid boxes as YOLO "
           "text files, and a data.yaml. It never changes the data set "
           "itself.",
           {.value_name = "DIR"}),
      flag({"--single-cls"}, {"verify", "tile"},
           "All classes count as one, as in training with this flag."),
      flag({"--all"}, {"verify"},
           "The command also prints a line for every image without a fault."),
      flag({"--workers"}, {"verify", "tile", "pack"},
           "This many threads decode images. The default is all cores.",
           {.value_name = "N", .low = 1, .high = 1024}),
      flag({"--output"}, {"tile"},
           "The images, YOLO text files and a data.yaml for train go into "
           "this new folder. It appears when it is complete, or not at all.",
           {.value_name = "DIR", .is_required = true}),
      flag(
          {"--size"}, {"tile"},
          "Tiles have this size in pixels; images that are smaller stay as "
          "they are.",
          {.value_name = kPixelSize, .default_value = "640", .most_values = 2}),
      flag({"--overlap"}, {"tile"},
           "Neighbours share at least this part of a tile's side, 0 to 0.9; "
           "an object no larger than that lies whole in some tile.",
           {.value_name = "X", .default_value = "0.2", .low = 0, .high = 0.9}),
      flag({"--min-visible"}, {"tile"},
           "A box stays in a tile, clipped to it, where at least this part "
           "of its area is inside, 0 to 1.",
           {.value_name = "X", .default_value = "0.3", .low = 0, .high = 1}),
      flag({"--empty-share"}, {"tile"},
           "This part of the tiles without a box is kept, 0 to 1, chosen by "
           "the image's name and the tile's place. Tiles that show parts of "
           "boxes too small to stay are not among them, and are left out.",
           {.value_name = "X", .default_value = "0.1", .low = 0, .high = 1}),
      flag({"--output"}, {"pack"},
           "The packs, their indexes and a data.yaml for train go into this "
           "new folder. It appears when it is complete, or not at all.",
           {.value_name = "DIR", .is_required = true}),
      flag({"--pack-size"}, {"pack"},
           "A pack has at most this size, but holds an image.",
           {.value_name = "SIZE", .default_value = "1GiB"}),
      flag({"--json"}, {"verify", "tile", "pack"},
           "The command prints its result as one JSON document on standard "
           "output."),
      flag({"--weights"}, {"export"},
           "These weights are exported: .safetensors, or a checkpoint of "
           "YOLOv5 (.pt).",
           {.value_name = "FILE", .is_required = true}),
      flag({"--include"}, {"export"},
           "The command writes these formats: onnx, torchscript, "
           "safetensors, or several. The default is what --output ends in, "
           "else onnx.",
           {.value_name = "FORMAT [FORMAT]", .most_values = 100}),
      flag({"--cfg"}, {"export"},
           "This is the model, where the weights do not say which it is.",
           {.value_name = "MODEL"}),
      flag({"--output"}, {"export"},
           "The command writes to STEM or STEM.onnx. The default is beside "
           "the weights.",
           {.value_name = "STEM"}),
      flag({"--img", "--imgsz", "--img-size"}, {"export"},
           "The network's input has this size in pixels. The default is as "
           "trained, else 640.",
           {.value_name = kPixelSize, .most_values = 2}),
      flag({"--batch", "--batch-size"}, {"export"},
           "The network takes this many images at once.",
           {.value_name = "N", .default_value = "1", .low = 1, .high = 65'536}),
      flag({"--dynamic"}, {"export"},
           "Batch, height and width are left open; sides are multiples of "
           "the largest stride, usually 32."),
      flag({"--half"}, {"export"},
           "Weights and feature maps are in float16; boxes are decoded in "
           "float32."),
      flag({"--int8"}, {"export"},
           "Weights and feature maps are integers of 8 bits, with ranges "
           "measured on images of --data, which it needs; boxes are decoded "
           "in float32."),
      flag({"--data"}, {"export"},
           "With --int8, its training images calibrate the ranges, and on "
           "its val images mAP is measured in float32 and in 8 bits.",
           {.value_name = "DATA.YAML"}),
      flag({"--calibration-images"}, {"export"},
           "With --int8, this many images, spread over the training split, "
           "calibrate.",
           {.value_name = "N",
            .default_value = "128",
            .low = 1,
            .high = 1'000'000}),
      flag({"--noval"}, {"export"}, "With --int8, mAP is not measured."),
      flag({"--threads"}, {"export", "prune"},
           "The network computes with this many threads. The default is all "
           "cores.",
           {.value_name = "N", .low = 1, .high = 1024}),
      flag({"--weights"}, {"prune"},
           "These weights are pruned: .safetensors, or a checkpoint of "
           "YOLOv5 (.pt).",
           {.value_name = "FILE", .is_required = true}),
      flag({"--cfg"}, {"prune"},
           "This is the model, where the weights do not say which it is.",
           {.value_name = "MODEL"}),
      flag({"--share"}, {"prune"},
           "The command removes this part of all channels, 0.001 to 0.999.",
           {.value_name = "X",
            .default_value = "0.3",
            .low = 0.001,
            .high = 0.999}),
      flag({"--output"}, {"prune"},
           "The pruned weights go into this file; their model file goes "
           "beside it, as .yaml.",
           {.value_name = "FILE", .default_value = "pruned.safetensors"}),
      flag({"--data"}, {"prune"},
           "The command measures mAP on its val images, before and after.",
           {.value_name = "DATA.YAML"}),
      flag({"--img", "--imgsz", "--img-size"}, {"prune"},
           "With --data, the network's input has this size in pixels. The "
           "default is as trained, else 640.",
           {.value_name = kPixelSize, .most_values = 2}),
      flag(
          {"--batch", "--batch-size"}, {"prune"},
          "With --data, this many images go through the network at once.",
          {.value_name = "N", .default_value = "16", .low = 1, .high = 65'536}),
      flag({"--raw"}, {"export"},
           "The network stops before it decodes boxes: it has one output per "
           "level, as the loss sees it."),
      flag({"--nms"}, {"export"},
           "The network ends with non-maximum suppression, which keeps one "
           "box of several on an object. An output line is image, x1, y1, "
           "x2, y2, score, class."),
      flag({"--conf-thres"}, {"export"},
           "With --nms, boxes with a lower score are dropped.",
           {.value_name = "X", .default_value = "0.25", .low = 0, .high = 1}),
      flag({"--iou-thres"}, {"export"},
           "With --nms, of two boxes of a class with a larger IoU (overlap) "
           "the weaker one is dropped.",
           {.value_name = "X", .default_value = "0.45", .low = 0, .high = 1}),
      flag({"--topk-per-class"}, {"export"},
           "With --nms, at most this many boxes of a class in an image are "
           "kept.",
           {.value_name = "N",
            .default_value = "100",
            .low = 1,
            .high = 100'000}),
      flag({"--weights"}, {"detect"},
           "The network has these weights: .safetensors, or a checkpoint of "
           "YOLOv5 (.pt).",
           {.value_name = "FILE", .is_required = true}),
      flag({"--source"}, {"detect"},
           "Objects are looked for here: an image, a video, a folder, a "
           "pattern such as 'a/*.jpg', or a .txt list of images.",
           {.value_name = "PATH", .is_required = true}),
      flag({"--output"}, {"detect"},
           "The results go into this folder, from --project and --name.",
           {.value_name = "DIR",
            .known_to = KnownTo::kTool,
            .is_required = true}),
      flag({"--cfg"}, {"detect"},
           "This is the model, where the weights do not say which it is.",
           {.value_name = "MODEL"}),
      flag({"--img", "--imgsz", "--img-size"}, {"detect"},
           "The network's input has this size; images keep their shape. The "
           "default is as trained, else 640.",
           {.value_name = kPixelSize, .most_values = 2}),
      flag({"--resample"}, {"detect"},
           "Images shrink by area as in val, or bilinear as in YOLOv5.",
           {.default_value = "bilinear", .choices = {"area", "bilinear"}}),
      flag({"--tile"}, {"detect"},
           "The network looks at tiles of this size instead of whole images, "
           "and their boxes are merged: this finds small objects.",
           {.value_name = kPixelSize, .most_values = 2}),
      flag({"--tile-overlap"}, {"detect"},
           "Tiles overlap by at least this part of their side: as much as the "
           "largest object.",
           {.value_name = "X", .default_value = "0.2", .low = 0, .high = 0.9}),
      flag({"--conf-thres"}, {"detect"},
           "Boxes with a lower score are dropped.",
           {.value_name = "X", .default_value = "0.25", .low = 0, .high = 1}),
      flag({"--iou-thres"}, {"detect"},
           "Of two boxes of a class with a larger IoU (overlap) the weaker "
           "one is dropped.",
           {.value_name = "X", .default_value = "0.45", .low = 0, .high = 1}),
      flag({"--max-det"}, {"detect"},
           "At most this many boxes of an image are kept.",
           {.value_name = "N",
            .default_value = "1000",
            .low = 1,
            .high = 1'000'000}),
      flag({"--classes"}, {"detect"},
           "Only boxes of these classes, by number, are kept: --classes 0 2.",
           {.value_name = "N [N]", .most_values = 1000}),
      flag({"--agnostic-nms"}, {"detect"},
           "Overlapping boxes count as one although their classes differ."),
      flag({"--save-txt"}, {"detect"},
           "Boxes are written to labels/NAME.txt: class cx cy w h, as "
           "fractions of the image."),
      flag({"--save-conf"}, {"detect"},
           "With --save-txt, each line has the score as well."),
      flag({"--save-csv"}, {"detect"},
           "Boxes are written to predictions.csv, in pixels."),
      flag({"--save-json"}, {"detect"},
           "Boxes are written to predictions.json, a COCO result file."),
      flag({"--save-geojson"}, {"detect"},
           "Boxes in GeoTIFFs are written to predictions.geojson, in WGS 84."),
      flag({"--save-gpkg"}, {"detect"},
           "Boxes in GeoTIFFs are written to predictions.gpkg, a GeoPackage in "
           "the first image's reference system."),
      flag({"--save-crop"}, {"detect"},
           "Every box is cut out and written to crops/CLASS/NAME_N.jpg."),
      flag({"--nosave"}, {"detect"},
           "No pictures or videos with drawn boxes are written."),
      flag({"--hide-labels"}, {"detect"},
           "Boxes are drawn without names and scores."),
      flag({"--hide-conf"}, {"detect"}, "Names are drawn without scores."),
      flag({"--line-thickness"}, {"detect"},
           "Boxes' lines have this many pixels. The default follows from the "
           "image's size.",
           {.value_name = "N", .low = 1, .high = 100}),
      flag({"--vid-stride"}, {"detect"},
           "The command looks at every Nth picture of a video, from the "
           "first.",
           {.value_name = "N", .default_value = "1", .low = 1, .high = 10'000}),
      flag({"--device"}, {"detect"},
           "The network runs on cpu (or empty), or on an NVIDIA card by "
           "number.",
           {.value_name = "cpu|0", .may_be_empty = true}),
      flag({"--threads"}, {"detect"},
           "The network computes with this many threads.",
           {.value_name = "N", .default_value = "1", .low = 1, .high = 1024}),
      flag({"--project"}, {"detect"}, "Result folders are made in this one.",
           {.value_name = "DIR",
            .default_value = "runs/detect",
            .known_to = KnownTo::kHeadroom}),
      flag({"--name"}, {"detect"},
           "The results' folder has this name, or exp2 where exp is there.",
           {.value_name = "NAME",
            .default_value = "exp",
            .known_to = KnownTo::kHeadroom}),
      flag({"--exist-ok"}, {"detect"},
           "The results' folder may be there already."),
      flag({"--resume"}, {"detect"},
           "An unfinished run of the same command goes on."),
  };
}

std::vector<CommandFlag> flags_but_those_of(KnownTo program) {
  std::vector<CommandFlag> flags = flags_of_processes();
  const std::vector<CommandFlag> tools = flags_of_tools();
  flags.insert(flags.end(), tools.begin(), tools.end());
  std::erase_if(
      flags, [&](const CommandFlag& flag) { return flag.known_to == program; });
  return flags;
}

}  // namespace

const std::vector<CommandFlag>& command_flags() {
  static const auto known = flags_but_those_of(KnownTo::kTool);
  return known;
}

const CommandFlag* find_command_flag(const std::string& command,
                                     const std::string& spelling) {
  const auto flag =
      std::ranges::find_if(command_flags(), [&](const CommandFlag& each) {
        return belongs_to(each, command) &&
               std::ranges::count(each.spellings, spelling) > 0;
      });
  return flag == command_flags().end() ? nullptr : &*flag;
}

std::vector<CommandFlag> tool_flags(const std::string& command) {
  std::vector<CommandFlag> flags = flags_but_those_of(KnownTo::kHeadroom);
  std::erase_if(flags, [&](const CommandFlag& flag) {
    return !belongs_to(flag, command);
  });
  return flags;
}

bool belongs_to(const CommandFlag& flag, const std::string& command) {
  return std::ranges::find(flag.commands, command) != flag.commands.end();
}

}  // namespace headroom::configs
