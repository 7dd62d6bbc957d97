#include "deploy/cli/args/help_text.h"

#include "configs/arguments.h"
#include "configs/options.h"
#include "parallel/base/check.h"
#include "proto/version.h"

namespace headroom::cli {

const std::vector<CommandSummary>& command_summaries() {
  static const std::vector<CommandSummary> all = {
      {"train",
       "trains a detector: alone, or under mpirun, srun, torchrun, …",
       true,
       {"headroom train --data my.yaml --cfg yolov5n --img 320 --epochs 60",
        "headroom train --data my.yaml --weights yolov5s.safetensors "
        "--processes 2",
        "headroom train --resume runs/train/exp --epochs 100"}},
      {"plan",
       "shows the plan that train would use, and why; starts nothing",
       true,
       {"headroom plan --cfg yolov5s --batch 16 --bn-group 4 --layout "
        "pipeline=2 --show schedule",
        "headroom plan --cluster p4d.24xlarge:2 --cfg yolov5x --img 1280 "
        "--batch 128",
        "headroom plan --cfg yolov5s --gpu-memory 8GiB --processes 4 --sweep "
        "img=416,640,1280 batch=8..64"}},
      {"val",
       "evaluates weights on a data set: precision, recall, mAP",
       true,
       {"headroom val --data my.yaml --weights "
        "runs/train/exp/weights/best.safetensors",
        "headroom val --data my.yaml --weights w.safetensors --task test",
        "headroom val --detections results.json --ground-truth "
        "instances_val2017.json"}},
      {"verify",
       "finds faults in a data set, and says what training does then",
       false,
       {"headroom verify --data my.yaml",
        "headroom verify --data my.yaml --strict --json",
        "headroom verify --data voc/ --fix-to corrected/"},
       true,
       "Decodes every image and reads every box by the rules of training, and "
       "prints\neach fault with its file, its line and what is done: box "
       "clipped, box dropped,\nimage left out. Training does the same and goes "
       "on, so faults are warnings and\nthe exit code is 0; it is 4 where "
       "training would be refused (an unknown class,\nno usable image, no box) "
       "and, with --strict, where there is any fault."},
      {"tile",
       "cuts large images and their labels into tiles to train on",
       false,
       {"headroom tile --data my.yaml --output tiles",
        "headroom tile --data my.yaml --output tiles --size 1024 --overlap "
        "0.25 --empty-share 1",
        "headroom tile --data voc/ --output tiles --size 512 768 --json"},
       true,
       "Cuts every image of train, val and test into tiles of one size that "
       "overlap,\n"
       "cover all of it and are spread evenly from edge to edge, with their "
       "boxes.\n"
       "Polygons count as their bounding boxes. JPEG images become JPEG tiles "
       "of quality\n"
       "95, others PNG with all their bits. No picture is held whole where its "
       "format\n"
       "allows that: TIFF by strips and tiles, JPEG, PNG and BMP by rows; "
       "progressive\n"
       "JPEG, interlaced PNG and WebP are, and are left out above 178,956,970 "
       "pixels.\n"
       "Faults in the data are handled and named as in training; an image that "
       "cannot be\n"
       "read is left out."},
      {"pack",
       "writes a data set into a few large files, for millions of images",
       false,
       {"headroom pack --data my.yaml --output packs",
        "headroom pack --data my.yaml --output packs --pack-size 256MiB",
        "headroom pack --data voc/ --output packs --json"},
       true,
       "Writes the images of train, val and test byte for byte, with their "
       "boxes, into\n"
       "tar archives with an index. A run on them starts without opening the "
       "images, and\n"
       "computes what it would on the files. Training takes the folder as "
       "--data.\n"
       "Faults in the data are handled and named as in training."},
      {"coordinator",
       "gives workers ranks and a plan, as a server on its own",
       true,
       {"headroom coordinator --listen 127.0.0.1:29500 --expected-workers 2 "
        "--data my.yaml --cfg yolov5n",
        "headroom coordinator --listen 10.0.0.5:29500 --insecure-network "
        "--expected-workers 8 --data my.yaml",
        "headroom coordinator --listen 127.0.0.1:29500 --config run.yaml"}},
      {"agent",
       "starts and watches one machine's workers for a coordinator",
       false,
       {"headroom agent --coordinator 127.0.0.1:29500",
        "headroom agent --coordinator 10.0.0.5:29500 --processes 4",
        "OMP_PROC_BIND=false headroom agent --coordinator head-node:29500"}},
      {"detect",
       "finds objects in images and videos: pictures, tables, crops",
       false,
       {"headroom detect --weights runs/train/exp/weights/best.safetensors "
        "--source images/",
        "headroom detect --weights best.safetensors --source scene.tif --tile "
        "640 --save-csv",
        "headroom detect --weights yolov5s.pt --source clip.mp4 --classes 2 "
        "--save-txt"},
       true},
      {"export",
       "writes weights as ONNX, TorchScript or safetensors",
       false,
       {"headroom export --weights runs/train/exp/weights/best.safetensors "
        "--include onnx --img 640",
        "headroom export --weights yolov5s.pt --include onnx --dynamic --nms",
        "headroom export --weights best.safetensors --img 320 --int8 --data "
        "my.yaml"},
       true},
      {"prune",
       "removes the least channels of weights, to be trained on",
       false,
       {"headroom prune --weights best.safetensors --share 0.3",
        "headroom prune --weights best.safetensors --share 0.5 --output "
        "small.safetensors --data my.yaml --img 320",
        "headroom train --weights pruned.safetensors --data my.yaml --epochs "
        "30"},
       true,
       "Removes the channels whose batch-norm scales are smallest, over the "
       "whole model\n(network slimming, Liu et al. 2017), and writes what is "
       "left: weights that know\ntheir own model, for train, val, detect and "
       "export without --cfg, and the model\nfile for people. Channels that "
       "are added to each other go together. A pruned\nnetwork sees badly "
       "until it is trained on (the third example)."},
      {"status",
       "shows what a run is doing: processes, plan, progress, events",
       false,
       {"headroom status --coordinator 127.0.0.1:29500 --watch",
        "headroom status runs/train/exp",
        "headroom status runs/train/exp --ledger"},
       false,
       "",
       1,
       "[RUN_DIR]"},
      {"page",
       "a run, or several, in the browser: curves, memory, layout, events",
       false,
       {"headroom page runs/train/exp", "headroom page runs/train",
        "headroom page runs/train --listen 127.0.0.1:8080"},
       false,
       "Serves the page until Ctrl-C, and prints its address. A folder of runs "
       "compares\nthem; those that train are followed. The page reads, and "
       "changes nothing.",
       1,
       "RUN_DIR|FOLDER"},
      {"report",
       "the same as one HTML file, to keep or to mail",
       false,
       {"headroom report runs/train/exp",
        "headroom report runs/train/exp runs/train/exp2 --output two.html",
        "headroom report runs/train/exp --output exp.html --exist-ok"},
       false,
       "Writes report.html, at most 2 MB, that needs nothing beside it: into "
       "the run\ndirectory, or here where several runs are named.",
       100,
       "RUN_DIR..."},
  };
  return all;
}

const CommandSummary* find_command(const std::string& name) {
  for (const CommandSummary& command : command_summaries()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

namespace {

using configs::help_entry;
using configs::Option;

std::string options_help(const std::string& command) {
  std::string text, heading;
  for (const auto* options :
       {&configs::run_options(), &configs::command_options()}) {
    for (const Option& option : *options) {
      if (!belongs_to(option, command) || option.is_internal) continue;
      if (option.group != heading) text += "\n" + option.group + "\n";
      heading = option.group;
      text += help_entry(configs::form_of(option), advice_with_default(option));
    }
  }
  return text + help_entry("--help, -h", "This prints the text that you read.");
}

std::string exit_codes_help() {
  std::string text = "\nExit codes\n";
  for (const ExitCodeSummary& code : exit_code_summaries()) {
    text += help_entry(std::to_string(code.exit_code), code.meaning);
  }
  return text;
}

}  // namespace

const std::vector<ExitCodeSummary>& exit_code_summaries() {
  const auto of = [](ExitCode code, const char* meaning) {
    return ExitCodeSummary{static_cast<int>(code), meaning};
  };
  static const std::vector<ExitCodeSummary> summaries = {
      of(ExitCode::kDone, "the command is done"),
      {kInternalError, "the program itself has a fault"},
      of(ExitCode::kRequest, "the request is wrong"),
      of(ExitCode::kNoPlan, "no plan fits; the message says what would"),
      of(ExitCode::kData, "the data cannot be used"),
      of(ExitCode::kResource,
         "the run stopped at a committed step, because a process or a resource "
         "is missing; headroom train --resume goes on"),
      of(ExitCode::kInterrupted,
         "the run was interrupted; headroom train --resume goes on"),
  };
  return summaries;
}

std::string general_help() {
  std::string text =
      std::string("headroom ") + wire::kVersion +
      ": trains YOLOv5-family detectors on one or many processes.\n\n"
      "usage: headroom COMMAND [flags]\n\n";
  for (const CommandSummary& command : command_summaries()) {
    text += "  " + command.name + std::string(13 - command.name.size(), ' ') +
            command.summary + "\n";
  }
  return text +
         "\nheadroom COMMAND --help explains a command; headroom --version.\n" +
         exit_codes_help();
}

std::string command_help(const std::string& command) {
  const CommandSummary& summary = *find_command(command);
  std::string text = "headroom " + command + ": " + summary.summary +
                     "\n\nusage: headroom " + command +
                     (summary.run_directories_name.empty()
                          ? ""
                          : " " + summary.run_directories_name) +
                     " [flags]\n\nExamples\n";
  for (const std::string& example : summary.examples) {
    text += "  " + example + "\n";
  }
  if (!summary.lesson.empty()) text += "\n" + summary.lesson + "\n";
  return text + options_help(command) + exit_codes_help();
}

}  // namespace headroom::cli
