// The options that are not keys of a run, in the order of the help. A tool of
// headroom-worker binds its options in worker/tools, so a new option of a tool
// is an entry here and a binding there.
#include "configs/options.h"

namespace headroom::configs {
namespace {

const std::string kJsonAdvice =
    "The command prints its result as one JSON document on standard output.";

std::vector<Option> options_of_any_key() {
  const std::vector<std::string> commands = {"train", "plan", "coordinator",
                                             "val"};
  return {
      option("--config RUN.YAML", commands,
             "This YAML file holds any of the keys (configs/run has "
             "examples). It is read before --hyp and all other flags."),
      option("--set KEY=VALUE", commands,
             "This sets any key, for example checkpoint_every_steps=3 or "
             "hyp.lr0=0.02. It may be repeated.",
             {.may_repeat = true}),
  };
}

std::vector<Option> options_of_processes() {
  return {
      option("--listen HOST:PORT", {"coordinator", "page"},
             "The command listens at this address; port 0 takes a free one.",
             {.default_value = "127.0.0.1:0"}),
      option("--expected-workers N", {"coordinator"},
             "The run starts when this many workers, of all agents together, "
             "are there. A resumed run expects as many as before.",
             {.default_value = "1"}),
      option("--coordinator HOST:PORT", {"agent", "status"},
             "The coordinator listens at this address."),
      option("--coordinator HOST:PORT", {"train", "val"},
             "This machine joins the run of a coordinator that is already "
             "there, as an agent. Under a launcher, rank 0's coordinator "
             "listens at this address; :PORT is a port of the machine that the "
             "launcher names."),
      option("--rendezvous DIR", {"train", "val"},
             "Under a launcher that names no machine, as mpirun or srun, rank "
             "0 leaves the coordinator's address in this folder, which all "
             "hosts share. One host does not need it."),
      option("--log FILE", {"coordinator"},
             "The coordinator writes decisions to this file before anybody "
             "hears of them. Started again with the same flags and log, at the "
             "same address, it goes on with its run."),
      option("--metrics HOST:PORT", {"train", "val", "coordinator"},
             "The coordinator answers Prometheus at this address (GET "
             "/metrics). A host beyond loopback needs --insecure-network, "
             "because it is plain HTTP."),
      option("--page HOST:PORT|off", {"train"},
             "The run's page is served at this address, or nowhere (off). A "
             "host beyond loopback needs --certs.",
             {.default_value = "127.0.0.1:0"}),
      option("--page-controls", {"train"},
             "The page has a button that stops the run, as Ctrl-C does: after "
             "a step, with its state saved. Without the flag the page only "
             "shows."),
      option("--page HOST:PORT|off", {"coordinator"},
             "The run's page is served at this address. Without the flag there "
             "is none."),
      option("--output FILE", {"report"},
             "The report is written to this file. The default is report.html, "
             "in the run directory or, for several runs, in the present "
             "folder."),
      option("--exist-ok", {"report"},
             "The file is replaced although it is no report."),
      option("--accept-licence", {"fetch"},
             "You accept the licence under which the weights are published, "
             "once for all weights under it; the refusal without the flag "
             "names it."),
      option("--from URL", {"fetch"},
             "The file is got from this folder, an https:// address, instead "
             "of its publisher's."),
      option("--mlflow URI", {"train"},
             "The MLflow server at this address gets parameters, metrics and "
             "the best weights; what it misses follows. Credentials are taken "
             "from MLFLOW_TRACKING_TOKEN, or from _USERNAME and _PASSWORD."),
      option("--mlflow-experiment NAME", {"train"},
             "With --mlflow, the run belongs to this experiment.",
             {.default_value = "headroom"}),
      option("--webhook URL", {"train"},
             "This address gets a JSON object by POST for the run's end, lost "
             "processes and out-of-memory retries that change the plan."),
      option("--on-event PROGRAM", {"train"},
             "This program is started once with the run and reads the run's "
             "events on its standard input, a JSON object a line. It may be "
             "slow, fail or never read: training goes on. It is a file or a "
             "program in PATH, without arguments. The flag may be repeated, "
             "and has to be given again with --resume.",
             {.may_repeat = true}),
      option("--augment-program COMMAND",
             {"train", "plan", "coordinator", "agent"},
             "This program, with its arguments after spaces, augments each "
             "training sample last, as the guide's page on data explains. "
             "Every loader thread starts one. The flag has to be given again "
             "with --resume, and to every agent."),
      option("--processes N", {"agent"},
             "The agent starts this many workers on this machine.",
             {.default_value = "1"}),
      option("--spot auto|off|URL", {"train", "agent"},
             "A spot machine's metadata service is asked every 5 s whether the "
             "machine is taken away; its workers then leave at a committed "
             "step. auto asks on Amazon EC2 alone.",
             {.default_value = "auto"}),
      option("--insecure-network",
             {"train", "val", "coordinator", "agent", "status", "page"},
             "Control traffic may leave the machine although it is neither "
             "encrypted nor authenticated; this is for private networks."),
      option("--certs DIR",
             {"train", "val", "coordinator", "agent", "status", "page"},
             "This folder holds the certificates of --init-certs: control "
             "traffic is encrypted, and both sides prove who they are. It is "
             "needed beyond loopback (this machine's own address), with a "
             "token."),
      option("--interface NAME", {"train", "val", "agent"},
             "Tensors go over this network interface of each machine, for "
             "example eth1. The default is the one towards the coordinator."),
      option("--token-file FILE",
             {"train", "val", "coordinator", "agent", "status", "page"},
             "This file holds the join token, a secret that everybody must "
             "know. The default is that in --certs DIR, or the run's own."),
      option("--init-certs DIR", {"coordinator"},
             "The command writes a certificate authority, certificates for the "
             "coordinator and for everybody else, and a join token into this "
             "folder, and ends."),
      option("--cert-names NAMES", {"coordinator"},
             "The coordinator's certificate holds these host names and "
             "addresses, with commas between them, and always localhost."),
      option("--show schedule", {"plan"},
             "The answer also draws what each pipeline stage does when: "
             "forward (F) and backward (B) of each micro-batch."),
      option("--details", {"plan"},
             "The answer also has the tables: parts of a step, memory of each "
             "stage and phase, layers, samples, other layouts."),
      option("--measure", {"plan"},
             "The command trains for at most 30 s on one card of this machine "
             "that nothing else uses, and keeps the time of its steps: this "
             "plan and later ones, for such cards, count on it instead of an "
             "assumed speed; --sweep and --prices do not."),
      option("--cluster NAME:NODES", {"plan"},
             "The plan is for machines that are not here: some nodes of an "
             "instance that can be rented, for example p4d.24xlarge:2, with "
             "one process per GPU."),
      option("--gpu CARD[:N]", {"plan"},
             "The plan is for one machine with cards of one kind, here or not, "
             "for example \"RTX 4090:2\" for two."),
      option("--gpu-memory SIZE", {"plan"},
             "The plan is for GPUs with this much memory, for example 8GiB; "
             "--processes says how many there are."),
      option("--images-per-second N", {"plan"},
             "The forecast of a step counts on this rate of one card or "
             "process alone. The default is assumed."),
      option("--network GBIT[,MS]|RUN", {"plan"},
             "The forecast counts on this network, or on what a run measured, "
             "by its folder."),
      option("--machines N", {"plan"},
             "The forecast spreads processes over this many machines."),
      option("--prices FILE", {"plan"},
             "Rank the machines of a price list that the run fits into by the "
             "price of an epoch; with --cluster or --gpu also say the price of "
             "the whole run there. Lines: NAME: PRICE of an hour, or NAME: "
             "{price: P, images_per_second: N}; CSV: NAME,PRICE,N."),
      option("--images N", {"plan"},
             "Without --data: images of an epoch, for the time and the price "
             "of a run."),
      option("--sweep AXIS=VALUES [AXIS=VALUES]", {"plan"},
             "The answer is a table of plans over models, image sizes and "
             "batches: cfg=yolov5n,yolov8n img=416,640 batch=8..64 (doubling "
             "from 8).",
             {.most_values = 3}),
      option("--write DIR", {"plan"},
             "The command also writes run.yaml and plan.json into this folder, "
             "for a worker without a coordinator: headroom-worker --standalone "
             "DIR/run.yaml."),
      option("--report FILE", {"plan"},
             "The command also writes the plan as one HTML file, to keep or to "
             "mail: the memory of each rank, of the first 16 layer by layer, "
             "the schedule, and what other layouts would cost. An older report "
             "is replaced."),
      option("--detections FILE", {"val"},
             "This file is scored instead of running a model. It has COCO's "
             "result format, a list of {image_id, category_id, bbox, score}. "
             "No other flag of val counts then but --ground-truth and --json.",
             {.is_required = true}),
      option("--ground-truth FILE", {"val"},
             "The boxes of --detections are compared with this file, in COCO's "
             "annotation format. Crowds are regions where nothing counts, as "
             "in COCO.",
             {.is_required = true}),
      option("--ledger", {"status"},
             "The command proves from the files of the run directory, which is "
             "named before it, that every step was taken once and every sample "
             "of each epoch used once. Where it was not so, it prints the "
             "lines that contradict, and its exit code is 4."),
      option("--watch", {"status"},
             "The command follows the run, as its page does, until it ends."),
      option("--json", {"train", "val", "status", "plan"}, kJsonAdvice),
      option("--debug-reflection", {"coordinator"},
             "The coordinator answers gRPC's server reflection, so that "
             "debugging tools such as grpcurl find its calls."),
      option("--config-fd FD", {"coordinator"},
             "This file descriptor holds run.yaml.", {.is_internal = true}),
      option("--report-fd FD", {"coordinator"},
             "This file descriptor takes the address.", {.is_internal = true}),
      option("--run-directory DIR", {"coordinator"}, "The run has this folder.",
             {.is_internal = true}),
      option("--saved-plan", {"coordinator"},
             "The coordinator takes the folder's plan.", {.is_internal = true}),
      option("--successor", {"coordinator"}, "An earlier coordinator is gone.",
             {.is_internal = true}),
      option("--supervised", {"agent"},
             "Another process tells how the agent ended.",
             {.is_internal = true}),
  };
}

// Options of verify, tile, pack, export, prune and detect.
std::vector<Option> options_of_tools() {
  return {
      option("--data DATA", {"verify", "tile", "pack"},
             "The data set is a data.yaml, as train takes it (YOLO text files, "
             "COCO JSON), or a Pascal VOC folder.",
             {.is_required = true}),
      option("--strict", {"verify"},
             "Any fault gives exit code 4, also one that training survives."),
      option("--fix-to DIR", {"verify"},
             "The command writes a corrected copy into this new folder: the "
             "images that are kept, byte for byte, their valid boxes as YOLO "
             "text files, and a data.yaml. It never changes the data set "
             "itself."),
      option("--single-cls", {"verify", "tile"},
             "All classes count as one, as in training with this flag."),
      option("--all", {"verify"},
             "The command also prints a line for every image without a fault."),
      option("--workers N", {"verify", "tile", "pack"},
             "This many threads decode images. The default is all cores.",
             {.range = {1, 1024}}),
      option("--output DIR", {"tile", "pack"},
             "What is written, with a data.yaml for train, goes into this new "
             "folder: tiles and YOLO text files, or packs and their indexes. "
             "It appears when it is complete, or not at all.",
             {.is_required = true}),
      option("--size HEIGHT [WIDTH]", {"tile"},
             "Tiles have this size in pixels; images that are smaller stay as "
             "they are.",
             {.default_value = "640", .most_values = 2}),
      option("--overlap X", {"tile"},
             "Neighbours share at least this part of a tile's side, 0 to 0.9; "
             "an object no larger than that lies whole in some tile.",
             {.range = {0, 0.9}, .default_value = "0.2"}),
      option("--min-visible X", {"tile"},
             "A box stays in a tile, clipped to it, where at least this part "
             "of its area is inside, 0 to 1.",
             {.range = {0, 1}, .default_value = "0.3"}),
      option("--empty-share X", {"tile"},
             "This part of the tiles without a box is kept, 0 to 1, chosen by "
             "the image's name and the tile's place. Tiles that show parts of "
             "boxes too small to stay are not among them, and are left out.",
             {.range = {0, 1}, .default_value = "0.1"}),
      option("--pack-size SIZE", {"pack"},
             "A pack has at most this size, but holds an image.",
             {.default_value = "1GiB"}),
      option("--json", {"verify", "tile", "pack"}, kJsonAdvice),
      option("--weights FILE", {"export", "prune", "detect"},
             "The network has these weights: .safetensors, or a checkpoint of "
             "YOLOv5 (.pt), also one that headroom fetch stored.",
             {.is_required = true}),
      option("--source PATH", {"detect"},
             "Objects are looked for here: an image, a video, a folder, a "
             "pattern such as 'a/*.jpg', or a .txt list of images; or - for a "
             "program that sends pictures, such as headroom_train.Detector.",
             {.is_required = true}),
      option("--include FORMAT [FORMAT]", {"export"},
             "The command writes these formats: onnx, torchscript, "
             "safetensors, pt (PyTorch's state dict), or several. The default "
             "is what --output ends in, else onnx.",
             {.most_values = 100}),
      option("--cfg MODEL", {"export", "prune", "detect"},
             "This is the model, where the weights do not say which it is."),
      option("--share X", {"prune"},
             "The command removes this part of all channels, 0.001 to 0.999. "
             "More makes a smaller and faster network that has to be trained "
             "longer.",
             {.range = {0.001, 0.999}, .default_value = "0.3"}),
      option("--output STEM", {"export"},
             "The command writes to STEM or STEM.onnx. The default is beside "
             "the weights."),
      option("--output FILE", {"prune"},
             "The pruned weights go into this file; their model file goes "
             "beside it, as .yaml.",
             {.default_value = "pruned.safetensors"}),
      option("--output DIR", {"detect"},
             "The results go into this folder, from --project and --name.",
             {.is_required = true, .is_internal = true}),
      option("--data DATA.YAML", {"export"},
             "With --int8, its training images calibrate the ranges, and on "
             "its val images mAP is measured in float32 and in 8 bits."),
      option("--data DATA.YAML", {"prune"},
             "The command measures mAP on its val images, before and after; "
             "--img and --batch count then."),
      option("--img, --imgsz, --img-size HEIGHT [WIDTH]",
             {"export", "prune", "detect"},
             "The network's input has this size in pixels; images keep their "
             "shape. More finds smaller objects and takes more time. The "
             "default is as trained, else 640.",
             {.most_values = 2}),
      option("--batch, --batch-size N", {"export"},
             "The network takes this many images at once.",
             {.range = {1, 65'536}, .default_value = "1"}),
      option("--batch, --batch-size N", {"prune"},
             "With --data, this many images go through the network at once.",
             {.range = {1, 65'536}, .default_value = "16"}),
      option("--dynamic", {"export"},
             "Batch, height and width are left open; sides are multiples of "
             "the largest stride, usually 32."),
      option("--half", {"export"},
             "Weights and feature maps are in float16; boxes are decoded in "
             "float32."),
      option("--int8", {"export"},
             "Weights and feature maps are integers of 8 bits, with ranges "
             "measured on images of --data, which it needs; boxes are decoded "
             "in float32."),
      option("--calibration-images N", {"export"},
             "With --int8, this many images, spread over the training split, "
             "calibrate.",
             {.range = {1, 1'000'000}, .default_value = "128"}),
      option("--noval", {"export"}, "With --int8, mAP is not measured."),
      option("--raw", {"export"},
             "The network stops before it decodes boxes: it has one output per "
             "level, as the loss sees it."),
      option("--nms", {"export"},
             "The network ends with non-maximum suppression, which keeps one "
             "box of several on an object, as detect does: a box has its best "
             "class. An output line is image, x1, y1, x2, y2, score, class. "
             "--conf-thres, --iou-thres and --topk-per-class count then."),
      option("--resample", {"detect"},
             "Images shrink by area as in val, or bilinear as in YOLOv5.",
             {.choices = {"area", "bilinear"}, .default_value = "bilinear"}),
      option("--tile HEIGHT [WIDTH]", {"detect"},
             "The network looks at tiles of this size instead of whole images, "
             "and their boxes are merged: this finds small objects.",
             {.most_values = 2}),
      option("--tile-overlap X", {"detect"},
             "Tiles overlap by at least this part of their side: as much as "
             "the largest object.",
             {.range = {0, 0.9}, .default_value = "0.2"}),
      option("--conf-thres X", {"export", "detect"},
             "Boxes with a lower score are dropped. More leaves fewer wrong "
             "boxes and misses more objects.",
             {.range = {0, 1}, .default_value = "0.25"}),
      option("--iou-thres X", {"export", "detect"},
             "Of two boxes of a class with a larger IoU (overlap) the weaker "
             "one is dropped. More keeps objects that stand close together, "
             "and more doubles. -1 is 0.45, and 0.7 for a head "
             "without anchors, such as YOLOv8's.",
             {.range = {-1, 1}, .default_value = "-1"}),
      option("--topk-per-class N", {"export"},
             "With --nms, at most this many boxes of a class in an image are "
             "kept.",
             {.range = {1, 100'000}, .default_value = "100"}),
      option("--max-det N", {"detect"},
             "At most this many boxes of an image are kept.",
             {.range = {1, 1'000'000}, .default_value = "1000"}),
      option("--classes N [N]", {"detect"},
             "Only boxes of these classes, by number, are kept: --classes 0 2.",
             {.most_values = 1000}),
      option("--agnostic-nms", {"detect"},
             "Overlapping boxes count as one although their classes differ."),
      option("--save-txt", {"detect"},
             "Boxes are written to labels/NAME.txt: class cx cy w h, as "
             "fractions of the image."),
      option("--save-conf", {"detect"},
             "With --save-txt, each line has the score as well."),
      option("--save-csv", {"detect"},
             "Boxes are written to predictions.csv, in pixels."),
      option("--save-json", {"detect"},
             "Boxes are written to predictions.json, a COCO result file."),
      option("--save-geojson", {"detect"},
             "Boxes in GeoTIFFs are written to predictions.geojson, in WGS "
             "84."),
      option("--save-gpkg", {"detect"},
             "Boxes in GeoTIFFs are written to predictions.gpkg, a GeoPackage "
             "in the first image's reference system."),
      option("--save-crop", {"detect"},
             "Every box is cut out and written to crops/CLASS/NAME_N.jpg."),
      option("--nosave", {"detect"},
             "No pictures or videos with drawn boxes are written."),
      option("--hide-labels", {"detect"},
             "Boxes are drawn without names and scores."),
      option("--hide-conf", {"detect"}, "Names are drawn without scores."),
      option("--line-thickness N", {"detect"},
             "Boxes' lines have this many pixels. The default follows from the "
             "image's size.",
             {.range = {1, 100}}),
      option("--vid-stride N", {"detect"},
             "The command looks at every Nth picture of a video, from the "
             "first.",
             {.range = {1, 10'000}, .default_value = "1"}),
      option("--device cpu|0", {"detect"},
             "The network runs on cpu (or empty), or on an NVIDIA card by "
             "number.",
             {.may_be_empty = true}),
      option("--threads N", {"export", "prune"},
             "The network computes with this many threads. The default is all "
             "cores.",
             {.range = {1, 1024}}),
      option("--threads N", {"detect"},
             "The network computes with this many threads.",
             {.range = {1, 1024}, .default_value = "1"}),
      option("--project DIR", {"detect"},
             "Result folders are made in this one.",
             {.default_value = "runs/detect"}),
      option("--name NAME", {"detect"},
             "The results' folder has this name, or exp2 where exp is there.",
             {.default_value = "exp"}),
      option("--exist-ok", {"detect"},
             "The results' folder may be there already."),
      option("--resume", {"detect"},
             "An unfinished run of the same command goes on."),
  };
}

}  // namespace

const std::vector<Option>& command_options() {
  static const std::string others = "Processes and output";
  static const std::vector<Option> all =
      grouped({{kAnyKey, options_of_any_key()},
               {others, options_of_processes()},
               {others, options_of_tools()}});
  return all;
}

}  // namespace headroom::configs
