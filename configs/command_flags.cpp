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
    description += (description.empty() ? "Default " : " Default ") +
                   rules.default_value + ".";
  }
  if (!rules.choices.empty()) rules.value_name = joined(rules.choices, "|");
  return {std::move(rules), std::move(spellings), std::move(commands),
          std::move(description)};
}

std::vector<CommandFlag> flags_of_processes() {
  return {
      flag({"--listen"}, {"coordinator"},
           "Where to listen; port 0 takes a free one.",
           {.value_name = "HOST:PORT", .default_value = "127.0.0.1:0"}),
      flag({"--expected-workers"}, {"coordinator"},
           "Workers of all agents together; the run starts when all are there.",
           {.value_name = "N", .default_value = "1"}),
      flag({"--coordinator"}, {"agent", "status"},
           "Where the coordinator listens.", {.value_name = "HOST:PORT"}),
      flag({"--coordinator"}, {"train", "val"},
           "Join the run of a coordinator that is already there, as an agent. "
           "Under mpirun or srun: where rank 0's coordinator listens.",
           {.value_name = "HOST:PORT", .known_to = KnownTo::kHeadroom}),
      flag({"--rendezvous"}, {"train", "val"},
           "Under mpirun or srun: a folder that all hosts share, in which rank "
           "0 leaves the coordinator's address. Not needed on one host.",
           {.value_name = "DIR", .known_to = KnownTo::kHeadroom}),
      flag({"--log"}, {"coordinator"},
           "Where decisions are written down before anybody hears of them: "
           "started again with the same flags and log, at the same address, "
           "the coordinator goes on with its run.",
           {.value_name = "FILE"}),
      flag({"--metrics"}, {"train", "val", "coordinator"},
           "Where the coordinator answers Prometheus (GET /metrics); a host "
           "beyond loopback needs --insecure-network, for it is plain HTTP.",
           {.value_name = "HOST:PORT", .known_to = KnownTo::kHeadroom}),
      flag({"--processes"}, {"agent"}, "Workers to start on this machine.",
           {.value_name = "N", .default_value = "1"}),
      flag({"--insecure-network"},
           {"train", "val", "coordinator", "agent", "status"},
           "Allow control traffic beyond loopback although it is neither "
           "encrypted nor authenticated; for private networks.",
           {.known_to = KnownTo::kHeadroom}),
      flag({"--certs"}, {"train", "val", "coordinator", "agent", "status"},
           "Certificates of --init-certs: control traffic is encrypted, and "
           "both sides prove who they are. Needed beyond loopback, with a "
           "token.",
           {.value_name = "DIR", .known_to = KnownTo::kHeadroom}),
      flag({"--token-file"}, {"train", "val", "coordinator", "agent", "status"},
           "The join token that everybody must know; default: that in "
           "--certs DIR, or the run's own.",
           {.value_name = "FILE", .known_to = KnownTo::kHeadroom}),
      flag({"--init-certs"}, {"coordinator"},
           "Make a CA, certificates for the coordinator and for everybody "
           "else, and a join token, and end.",
           {.value_name = "DIR"}),
      flag({"--cert-names"}, {"coordinator"},
           "Host names and addresses of the coordinator in its certificate, "
           "with commas between them; localhost is always one.",
           {.value_name = "NAMES"}),
      flag({"--show"}, {"plan"},
           "Also draw what each pipeline stage does when: forward (F) and "
           "backward (B) of each micro-batch.",
           {.value_name = "schedule"}),
      flag({"--details"}, {"plan"},
           "Also print the tables: memory of each stage and phase, layers, "
           "samples, other layouts."),
      flag({"--cluster"}, {"plan"},
           "Plan for machines that are not here: so many nodes of an instance "
           "that can be rented, for example p4d.24xlarge:2. One process per "
           "GPU.",
           {.value_name = "NAME:NODES"}),
      flag({"--gpu"}, {"plan"},
           "Plan for so many cards of a kind, here or not, for example \"RTX "
           "4090:2\".",
           {.value_name = "CARD[:N]"}),
      flag({"--gpu-memory"}, {"plan"},
           "Plan for GPUs of this memory, for example 8GiB; --processes says "
           "how many there are.",
           {.value_name = "SIZE"}),
      flag({"--prices"}, {"plan"},
           "Rank the machines of a price list that the run fits into by the "
           "price of an epoch. Lines: NAME: PRICE of an hour, or NAME: "
           "{price: P, images_per_second: N}; CSV: NAME,PRICE,N.",
           {.value_name = "FILE"}),
      flag({"--images"}, {"plan"},
           "With --prices and without --data: images of an epoch.",
           {.value_name = "N"}),
      flag({"--sweep"}, {"plan"},
           "A table of plans over image sizes and batches: img=416,640,1280 "
           "batch=8..64 (doubling from 8).",
           {.value_name = "AXIS=VALUES [AXIS=VALUES]", .most_values = 2}),
      flag({"--write"}, {"plan"},
           "Also write run.yaml and plan.json into this folder, for a worker "
           "without a coordinator: headroom-worker --standalone DIR/run.yaml.",
           {.value_name = "DIR"}),
      flag({"--detections"}, {"val"},
           "Score this file instead of running a model: COCO's result format, "
           "a list of {image_id, category_id, bbox, score}. No other flag of "
           "val but --ground-truth and --json counts then.",
           {.value_name = "FILE", .is_required = true}),
      flag({"--ground-truth"}, {"val"},
           "What --detections is held against: COCO's annotation format. "
           "Crowds are regions where nothing counts, as in COCO.",
           {.value_name = "FILE", .is_required = true}),
      flag({"--ledger"}, {"status"},
           "Prove from the run directory's files, which is named before it, "
           "that every step was taken once and every sample of each epoch used "
           "once; exit 4 and the lines that contradict where it was not so."),
      flag({"--watch"}, {"status"}, "Follow the run until it ends."),
      flag({"--json"}, {"train", "val", "status", "plan"},
           "Print the result as one JSON document on standard output."),
      flag({"--debug-reflection"}, {"coordinator"},
           "For debugging: answer gRPC's server reflection, so that grpcurl "
           "and the like find the calls."),
      flag({"--config-fd"}, {"coordinator"}, "Holds run.yaml.",
           {.value_name = "FD", .is_internal = true}),
      flag({"--report-fd"}, {"coordinator"}, "Takes the address.",
           {.value_name = "FD", .is_internal = true}),
      flag({"--run-directory"}, {"coordinator"}, "The run's folder.",
           {.value_name = "DIR", .is_internal = true}),
      flag({"--saved-plan"}, {"coordinator"}, "The folder's plan is taken.",
           {.is_internal = true}),
      flag({"--successor"}, {"coordinator"}, "An earlier one is gone.",
           {.is_internal = true}),
      flag({"--supervised"}, {"agent"}, "Another process tells how it ended.",
           {.is_internal = true}),
  };
}

// verify, tile, export, prune and detect.
std::vector<CommandFlag> flags_of_tools() {
  return {
      flag({"--data"}, {"verify", "tile"},
           "data.yaml, as train takes it (YOLO text files, COCO JSON), or a "
           "Pascal VOC folder.",
           {.value_name = "DATA", .is_required = true}),
      flag({"--strict"}, {"verify"},
           "End with exit 4 where there is any fault, also one that training "
           "survives."),
      flag({"--fix-to"}, {"verify"},
           "Write a corrected copy into this new folder: the images that are "
           "kept, byte for byte, their sound boxes as YOLO text files, and "
           "a data.yaml. The data set itself is never changed.",
           {.value_name = "DIR"}),
      flag({"--single-cls"}, {"verify", "tile"},
           "All classes are one, as in training with this flag."),
      flag({"--all"}, {"verify"}, "Also a line for every image that is sound."),
      flag({"--workers"}, {"verify", "tile"},
           "Threads that decode images. Default: all cores.",
           {.value_name = "N", .low = 1, .high = 1024}),
      flag({"--output"}, {"tile"},
           "The new folder: images, YOLO text files, and a data.yaml that "
           "train takes. It appears when all of it is there, or not at all.",
           {.value_name = "DIR", .is_required = true}),
      flag(
          {"--size"}, {"tile"},
          "Of a tile, in pixels; images that are smaller stay as they are.",
          {.value_name = kPixelSize, .default_value = "640", .most_values = 2}),
      flag({"--overlap"}, {"tile"},
           "Neighbours share at least this part of a tile's side, 0 to 0.9; "
           "what is no larger than that lies whole in some tile.",
           {.value_name = "X", .default_value = "0.2", .low = 0, .high = 0.9}),
      flag({"--min-visible"}, {"tile"},
           "A box stays in a tile, clipped to it, where at least this part of "
           "its area is, 0 to 1.",
           {.value_name = "X", .default_value = "0.3", .low = 0, .high = 1}),
      flag({"--empty-share"}, {"tile"},
           "The part of the tiles without a box that is kept, 0 to 1, chosen "
           "by the image's name and the tile's place. Tiles with parts of "
           "boxes too small to stay are no such tiles, and are left out.",
           {.value_name = "X", .default_value = "0.1", .low = 0, .high = 1}),
      flag({"--json"}, {"verify", "tile"},
           "Print the result as one JSON document on standard output."),
      flag({"--weights"}, {"export"},
           "The weights to export: .safetensors, or a checkpoint of YOLOv5 "
           "(.pt).",
           {.value_name = "FILE", .is_required = true}),
      flag(
          {"--include"}, {"export"},
          "What to write: onnx, torchscript, safetensors, or several. Default: "
          "what --output ends in, else onnx.",
          {.value_name = "FORMAT [FORMAT]", .most_values = 100}),
      flag({"--cfg"}, {"export"},
           "The model, where the weights do not say which it is.",
           {.value_name = "MODEL"}),
      flag({"--output"}, {"export"},
           "Where to write: STEM or STEM.onnx. Default: beside the weights.",
           {.value_name = "STEM"}),
      flag({"--img", "--imgsz", "--img-size"}, {"export"},
           "The network's input size in pixels. Default: as trained, else 640.",
           {.value_name = kPixelSize, .most_values = 2}),
      flag({"--batch", "--batch-size"}, {"export"}, "Images at once.",
           {.value_name = "N", .default_value = "1", .low = 1, .high = 65'536}),
      flag({"--dynamic"}, {"export"},
           "Leave batch, height and width open; sides are multiples of the "
           "largest stride, usually 32."),
      flag({"--half"}, {"export"},
           "Weights and maps in float16; boxes are decoded in float32."),
      flag({"--int8"}, {"export"},
           "Weights and maps in integers of 8 bits, their ranges from images "
           "of --data; boxes are decoded in float32. Needs --data."),
      flag({"--data"}, {"export"},
           "With --int8: its training images calibrate, and on its val images "
           "mAP is measured in float32 and in 8 bits.",
           {.value_name = "DATA.YAML"}),
      flag({"--calibration-images"}, {"export"},
           "With --int8: so many images, spread over the training split.",
           {.value_name = "N",
            .default_value = "128",
            .low = 1,
            .high = 1'000'000}),
      flag({"--noval"}, {"export"}, "With --int8: do not measure mAP."),
      flag({"--threads"}, {"export", "prune"},
           "Threads of the network. Default: all cores.",
           {.value_name = "N", .low = 1, .high = 1024}),
      flag({"--weights"}, {"prune"},
           "The weights to prune: .safetensors, or a checkpoint of YOLOv5 "
           "(.pt).",
           {.value_name = "FILE", .is_required = true}),
      flag({"--cfg"}, {"prune"},
           "The model, where the weights do not say which it is.",
           {.value_name = "MODEL"}),
      flag({"--share"}, {"prune"},
           "The part of all channels that goes, 0.001 to 0.999.",
           {.value_name = "X",
            .default_value = "0.3",
            .low = 0.001,
            .high = 0.999}),
      flag({"--output"}, {"prune"},
           "The pruned weights; their model file goes beside them, as .yaml.",
           {.value_name = "FILE", .default_value = "pruned.safetensors"}),
      flag({"--data"}, {"prune"},
           "Measure mAP on its val images, before and after.",
           {.value_name = "DATA.YAML"}),
      flag({"--img", "--imgsz", "--img-size"}, {"prune"},
           "With --data: the network's input size. Default: as trained, else "
           "640.",
           {.value_name = kPixelSize, .most_values = 2}),
      flag(
          {"--batch", "--batch-size"}, {"prune"},
          "With --data: images at once.",
          {.value_name = "N", .default_value = "16", .low = 1, .high = 65'536}),
      flag({"--raw"}, {"export"},
           "Stop before decoding: one output per level, as the loss sees it."),
      flag({"--nms"}, {"export"},
           "End with non-maximum suppression: rows image, x1, y1, x2, y2, "
           "score, class."),
      flag({"--conf-thres"}, {"export"}, "With --nms: the least score.",
           {.value_name = "X", .default_value = "0.25", .low = 0, .high = 1}),
      flag({"--iou-thres"}, {"export"},
           "With --nms: boxes of a class that overlap by more are one.",
           {.value_name = "X", .default_value = "0.45", .low = 0, .high = 1}),
      flag({"--topk-per-class"}, {"export"},
           "With --nms: at most so many boxes of a class in an image.",
           {.value_name = "N",
            .default_value = "100",
            .low = 1,
            .high = 100'000}),
      flag({"--weights"}, {"detect"},
           "What sees: .safetensors, or a checkpoint of YOLOv5 (.pt).",
           {.value_name = "FILE", .is_required = true}),
      flag({"--source"}, {"detect"},
           "What to look at: an image, a video, a folder, a pattern such as "
           "'a/*.jpg', or a .txt list of images.",
           {.value_name = "PATH", .is_required = true}),
      flag({"--output"}, {"detect"},
           "The folder of the results, from --project and --name.",
           {.value_name = "DIR",
            .known_to = KnownTo::kTool,
            .is_required = true}),
      flag({"--cfg"}, {"detect"},
           "The model, where the weights do not say which it is.",
           {.value_name = "MODEL"}),
      flag({"--img", "--imgsz", "--img-size"}, {"detect"},
           "The network's input size in pixels; images keep their shape. "
           "Default: as trained, else 640.",
           {.value_name = kPixelSize, .most_values = 2}),
      flag({"--resample"}, {"detect"},
           "How images shrink: area as in val, or bilinear as in YOLOv5.",
           {.default_value = "bilinear", .choices = {"area", "bilinear"}}),
      flag({"--tile"}, {"detect"},
           "Look at tiles of so many pixels of the image instead of all of it "
           "at once, and merge what they show: for small things in large "
           "images.",
           {.value_name = kPixelSize, .most_values = 2}),
      flag({"--tile-overlap"}, {"detect"},
           "With --tile: by how much of their side tiles overlap at least; as "
           "large as the largest thing sought.",
           {.value_name = "X", .default_value = "0.2", .low = 0, .high = 0.9}),
      flag({"--conf-thres"}, {"detect"}, "The least score.",
           {.value_name = "X", .default_value = "0.25", .low = 0, .high = 1}),
      flag({"--iou-thres"}, {"detect"},
           "Boxes of a class that overlap by more are one.",
           {.value_name = "X", .default_value = "0.45", .low = 0, .high = 1}),
      flag({"--max-det"}, {"detect"}, "At most so many boxes in an image.",
           {.value_name = "N",
            .default_value = "1000",
            .low = 1,
            .high = 1'000'000}),
      flag({"--classes"}, {"detect"},
           "Only these classes, by number: --classes 0 2.",
           {.value_name = "N [N]", .most_values = 1000}),
      flag({"--agnostic-nms"}, {"detect"},
           "Boxes of different classes that overlap are one, too."),
      flag({"--save-txt"}, {"detect"},
           "labels/NAME.txt: class cx cy w h, fractions of the image."),
      flag({"--save-conf"}, {"detect"}, "With --save-txt: the score as well."),
      flag({"--save-csv"}, {"detect"}, "predictions.csv, boxes in pixels."),
      flag({"--save-json"}, {"detect"},
           "predictions.json, a COCO result file."),
      flag({"--save-crop"}, {"detect"},
           "crops/CLASS/NAME_N.jpg: every box cut out."),
      flag({"--nosave"}, {"detect"},
           "No pictures or videos with boxes drawn into them."),
      flag({"--hide-labels"}, {"detect"}, "Boxes without names and scores."),
      flag({"--hide-conf"}, {"detect"}, "Names without scores."),
      flag({"--line-thickness"}, {"detect"},
           "Of the boxes, in pixels. Default: by the image's size.",
           {.value_name = "N", .low = 1, .high = 100}),
      flag({"--vid-stride"}, {"detect"},
           "Of a video every Nth picture, from the first.",
           {.value_name = "N", .default_value = "1", .low = 1, .high = 10'000}),
      flag({"--device"}, {"detect"},
           "cpu (also where it is empty), or an NVIDIA card by its number.",
           {.value_name = "cpu|0", .may_be_empty = true}),
      flag({"--threads"}, {"detect"}, "Compute threads.",
           {.value_name = "N", .default_value = "1", .low = 1, .high = 1024}),
      flag({"--project"}, {"detect"}, "",
           {.value_name = "DIR",
            .default_value = "runs/detect",
            .known_to = KnownTo::kHeadroom}),
      flag({"--name"}, {"detect"},
           "The results' folder in it, exp2 where exp is there.",
           {.value_name = "NAME",
            .default_value = "exp",
            .known_to = KnownTo::kHeadroom}),
      flag({"--exist-ok"}, {"detect"},
           "Write into the folder although it is there."),
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
