#include "configs/fault.h"
#include "configs/knobs.h"
#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

using C = RunConfig;

constexpr double kMostSteps = 1e15;
constexpr double kMostProcesses = 65'536;
constexpr auto kVal = KnobFlag::Commands::kVal;
constexpr auto kTrainAndVal = KnobFlag::Commands::kTrainAndVal;

// "oom@rank=1,step=7,allocation=40 (an allocation fails), ..."
std::string faults_text() {
  return joined(fault_descriptions(), ", ", [](const FaultDescription& one) {
    return std::string(one.example) + " (" + one.does + ")";
  });
}

std::vector<Knob> what_to_train() {
  return {
      knob("command", &C::command,
           "The run trains (train), or only evaluates weights (val).",
           {.choices = {"train", "val"}}),
      knob("data", &C::data,
           "The data set is a data.yaml in any form that YOLOv5 takes: "
           "folders or lists of images, and class names. Nothing is ever "
           "downloaded.",
           {.flag = {.spellings = {"--data"},
                     .value_name = "DATA.YAML",
                     .commands = kTrainAndVal}}),
      knob("cfg", &C::cfg,
           "The model is a YAML file of layers, or the name of a shipped "
           "one: yolov5n s m l x, yolov5n6 s6 m6 l6 x6, or a variant such as "
           "yolov5s-p2. Without cfg and weights, yolov5s is trained from "
           "scratch.",
           {.flag = {.spellings = {"--cfg"},
                     .value_name = "MODEL",
                     .commands = kTrainAndVal}}),
      knob("weights", &C::weights,
           "Training starts from these weights, and val evaluates them: a "
           ".safetensors file with YOLOv5's tensor names, or a checkpoint of "
           "YOLOv5 or ultralytics (.pt), of which no code is executed. Empty "
           "starts from scratch, from random weights.",
           {.flag = {.spellings = {"--weights"},
                     .value_name = "FILE",
                     .commands = kTrainAndVal}}),
      knob("teacher", &C::teacher,
           "The run also learns from the outputs of this larger network with "
           "the same classes and anchors (distillation; hyp.distill is its "
           "gain). The file is .safetensors or YOLOv5's checkpoint, of a "
           "shipped model. It works on the CPU, without pipeline and spatial "
           "layouts.",
           {.defines_steps = true,
            .flag = {.spellings = {"--teacher"}, .value_name = "FILE"}}),
      knob("teacher_model", &C::teacher_model,
           "The run fills in the teacher's model, from its file, when it "
           "begins."),
      knob("teacher_digest", &C::teacher_digest,
           "The run fills in the checksum (XXH3-128) of the teacher's file. "
           "A resumed run takes the same file or stops."),
      knob("hyp_file", &C::hyp_file,
           "Hyper-parameters come from this file, YOLOv5's hyp.yaml, or from "
           "a shipped set: scratch-low, scratch-med, scratch-high, "
           "no-augmentation, voc, objects365. The flag outranks run.yaml, "
           "and --set outranks the flag.",
           {.flag = {.spellings = {"--hyp"}, .value_name = "HYP.YAML"}}),
  };
}

std::vector<Knob> anchors_and_batch() {
  return {
      knob("noautoanchor", &C::noautoanchor,
           "The run keeps the model's anchors, the box shapes that "
           "predictions start from. Otherwise anchors that match at most "
           "0.98 of the training boxes are replaced by ones found from the "
           "boxes, if these match more.",
           {.of_start = true, .flag = {.spellings = {"--noautoanchor"}}}),
      knob("anchors", &C::anchors,
           "The run trains with exactly these anchors: width,height in "
           "pixels, levels separated by ';', as in '10,13 16,30 33,23; 30,61 "
           "...'. Where it is empty, the run fills in the model's (without "
           "cfg: those of the weights' file) or what it found from the boxes.",
           {.defines_steps = true}),
      knob("anchors_reason", &C::anchors_reason,
           "The run fills in where its anchors come from, as a sentence."),
      knob("image_height", &C::image_height,
           "The network's input has this height, rounded up to a multiple of "
           "the model's largest stride (usually 32). --img S sets both "
           "sides, --img HEIGHT WIDTH each. val takes the size that the "
           "weights were trained at, if it is not given.",
           {.unit = "pixels",
            .low = 64,
            .high = 65'536,
            .flag = {.spellings = {"--img", "--imgsz", "--img-size"},
                     .value_name = "HEIGHT [WIDTH]",
                     .commands = kTrainAndVal,
                     .second_key = "image_width"}}),
      knob(
          "image_width", &C::image_width,
          "The network's input has this width, rounded up likewise; --img sets "
          "it.",
          {.unit = "pixels", .low = 64, .high = 65'536}),
      knob("global_batch_size", &C::global_batch_size,
           "One step trains on this many images over all processes together, "
           "as YOLOv5's --batch. The number of processes does not change it. "
           "-1 takes the most that fit into memory_limit at once, and no "
           "more than there are.",
           {.unit = "images",
            .low = 1,
            .high = 1'000'000,
            .defines_steps = true,
            .flag = {.spellings = {"--batch", "--batch-size"},
                     .value_name = "N",
                     .commands = kTrainAndVal}}),
  };
}

std::vector<Knob> how_to_train() {
  return {
      knob("epochs", &C::epochs,
           "The run passes over the training images this many times.",
           {.unit = "epochs",
            .low = 1,
            .high = 1'000'000'000,
            .flag = {.spellings = {"--epochs"}, .value_name = "N"}}),
      knob("max_steps", &C::max_steps,
           "The run ends, with a checkpoint, when it has committed "
           "(finished) this many steps, those before a resume included; 0 is "
           "no limit.",
           {.unit = "steps",
            .low = 0,
            .high = kMostSteps,
            .flag = {.spellings = {"--max-steps"}, .value_name = "N"}}),
      knob("optimizer", &C::optimizer,
           "The optimizer is SGD with Nesterov momentum, Adam, or AdamW, "
           "whose weight decay bypasses the gradient.",
           {.choices = names_in(kOptimizers),
            .defines_steps = true,
            .flag = {.spellings = {"--optimizer"}, .value_name = "NAME"}}),
      knob("cos_lr", &C::cos_lr,
           "The learning rate falls along a cosine instead of a line.",
           {.flag = {.spellings = {"--cos-lr"}}}),
      knob("label_smoothing", &C::label_smoothing,
           "Class scores are trained towards 1 - e/2 and e/2 instead of 1 "
           "and 0; this is e.",
           {.low = 0,
            .high = 1,
            .flag = {.spellings = {"--label-smoothing"}, .value_name = "E"}}),
      knob("single_cls", &C::single_cls,
           "All classes of the data set count as one.",
           {.defines_steps = true,
            .flag = {.spellings = {"--single-cls"}, .commands = kTrainAndVal}}),
      knob("random_crop", &C::random_crop,
           "Training cuts a window of the network's size out of every larger "
           "image, at a new random place each time, instead of shrinking the "
           "image. Boxes are clipped; they stay where 0.3 of their area is "
           "visible.",
           {.defines_steps = true, .flag = {.spellings = {"--random-crop"}}}),
      knob("image_weights", &C::image_weights,
           "The images of an epoch are drawn with replacement, each as "
           "likely as its labels' classes are rare and badly found (by mAP "
           "in the newest validation). Images without labels are never drawn.",
           {.defines_steps = true,
            .flag = {.spellings = {"--image-weights"},
                     .listed_behind = "single_cls"}}),
      knob("rect", &C::rect,
           "Training takes rectangular batches of images of similar aspect "
           "ratio: there is less padding, no mosaic and no shuffling.",
           {.defines_steps = true,
            .flag = {.spellings = {"--rect"}, .listed_behind = "single_cls"}}),
      knob("close_mosaic", &C::close_mosaic,
           "Training stops mosaics and mixup this many epochs before the "
           "end, so that the last images look as they do in use.",
           {.unit = "epochs",
            .low = 0,
            .high = 1'000'000'000,
            .flag = {.spellings = {"--close-mosaic"}, .value_name = "EPOCHS"}}),
      knob("multi_scale", &C::multi_scale,
           "Each batch is trained at a size of its own, 0.5 to 1.5 times "
           "--img; plans count on the largest.",
           {.flag = {.spellings = {"--multi-scale"}}}),
      knob("freeze", &C::freeze,
           "The first layers of the model, this many, do not learn; 10 is "
           "the backbone. Their batch-norm statistics still change, as in "
           "YOLOv5.",
           {.unit = "layers",
            .low = 0,
            .high = 10'000,
            .flag = {.spellings = {"--freeze"},
                     .value_name = "LAYERS",
                     .takes_row = true}}),
      knob("seed", &C::seed,
           "Every random draw follows from this number: initial weights, "
           "order, augmentation. Equal seeds give equal runs.",
           {.defines_steps = true,
            .flag = {.spellings = {"--seed"}, .value_name = "N"}}),
      knob("precision", &C::precision,
           "The network computes in this number format. bf16 and fp16 use 16 "
           "bits for feature maps and convolutions, and 32 for weights, sums "
           "and losses; fp64 is slow and checks that layouts agree. auto "
           "takes bf16 on cards that compute in it, else fp32, and a run "
           "keeps it.",
           {.flag = {.spellings = {"--precision"},
                     .value_name = joined(names_in(kPrecisions), "|"),
                     .commands = kTrainAndVal}}),
      knob("patience", &C::patience,
           "Training stops after this many epochs without a better fitness "
           "(0.1 mAP50 + 0.9 mAP); 0 never stops early.",
           {.unit = "epochs",
            .low = 0,
            .high = 1'000'000'000,
            .flag = {.spellings = {"--patience"}, .value_name = "EPOCHS"}}),
      knob("batch_norm_group_size", &C::batch_norm_group_size,
           "This many consecutive images of the batch share batch-norm "
           "statistics (mean and variance); a remainder is a smaller group. "
           "It changes results, whereas the layout does not. 0 makes max(1, "
           "round(batch / 16)) groups, whose sizes differ by at most one.",
           {.unit = "images",
            .low = 0,
            .high = 1'000'000,
            .defines_steps = true,
            .flag = {.spellings = {"--bn-group"}, .value_name = "K"}}),
      knob("sync_batch_norm", &C::sync_batch_norm,
           "The whole batch is one batch-norm group, as with YOLOv5's "
           "--sync-bn: batch_norm_group_size becomes the batch.",
           {.defines_steps = true, .flag = {.spellings = {"--sync-bn"}}}),
      knob("skip_non_finite", &C::skip_non_finite,
           "A step whose gradient is infinite or not a number skips its "
           "update and says so; otherwise the run stops before that step."),
  };
}

std::vector<Knob> where_it_runs() {
  return {
      knob(
          "device", &C::device,
          "The run uses auto (all cards of each node, or the CPU where no node "
          "has one), cpu, all (the run is refused where a node has no card), "
          "or NVIDIA cards of each node by number, as in 0 or 0,1. There is a "
          "process for each card.",
          {.flag = {.spellings = {"--device"},
                    .value_name = "auto|cpu|all|0,1",
                    .commands = kTrainAndVal}}),
      knob("tf32", &C::tf32,
           "A card rounds the factors of float32 products to TF32 (10 bits "
           "of mantissa), as PyTorch does: this is faster, but changes the "
           "losses.",
           {.flag = {.spellings = {"--tf32"}, .commands = kTrainAndVal}}),
      knob("deterministic", &C::deterministic,
           "A card's libraries choose only algorithms that give the same "
           "bits again; the CPU's always do.",
           {.flag = {.spellings = {"--deterministic"}}}),
      knob("cuda_graphs", &C::cuda_graphs,
           "A micro-batch's forward, loss and backward are captured once and "
           "given to the card as a whole. This helps small models and "
           "images, where the host's calls take longer than the kernels. It "
           "is for training with one image size, and whole models and images "
           "on each card.",
           {.flag = {.spellings = {"--cuda-graphs"}}}),
      knob("share_devices", &C::share_devices,
           "Several processes may take turns on one card, for tests. NCCL, "
           "NVIDIA's library for exchange, then sees each as a host of its "
           "own."),
      knob("full_mesh_ranks", &C::full_mesh_ranks,
           "Ranks of a Gloo group above this size connect when they first "
           "exchange something, not all at the start.",
           {.unit = "ranks", .low = 1, .high = kMostProcesses}),
      knob("require_rate", &C::require_rate,
           "A run over NCCL is refused where its first sums go at less than "
           "this between its machines, or between the cards of its only one: "
           "the fast network was not found. Without it a tenth of what such "
           "machines have is said with a warning.",
           {.unit = "GB/s",
            .low = 0,
            .flag = {.spellings = {"--require-rate"}, .value_name = "N"}}),
      knob("processes", &C::processes,
           "This many worker processes run on this machine (under mpirun or "
           "srun: in each slot). Without it the layout gives their number, "
           "else there is one for each card, and 1 on a CPU. What joins a "
           "coordinator (--coordinator) starts 1.",
           {.unit = "processes",
            .low = 0,
            .high = kMostProcesses,
            .of_plan = true,
            .flag = {.spellings = {"--processes"},
                     .value_name = "N",
                     .commands = kTrainAndVal,
                     .in_coordinator = false}}),
      knob("min_processes", &C::min_processes,
           "A run that loses processes goes on with at least this many; with "
           "fewer it waits up to 10 minutes for others.",
           {.unit = "processes",
            .low = 1,
            .high = kMostProcesses,
            .flag = {.spellings = {"--min-processes"}, .value_name = "N"}}),
      knob("card_failure_steps", &C::card_failure_steps,
           "A card that fails twice within this many steps is left out: no "
           "process is started on it any more. Raise it where an unsteady "
           "card costs more than its share of the speed; lower it where "
           "failures have causes beside the card.",
           {.unit = "steps", .low = 1, .high = kMostSteps}),
      knob("layout", &C::layout,
           "The layout splits a step over processes: data shares out the "
           "images, pipeline the model's layers, spatial the lines of each "
           "image. The axes may come in any order "
           "(data=2,pipeline=1,spatial=1); a missing one is 1, and their "
           "product is the number of processes. It changes no result.",
           {.of_plan = true,
            .flag = {.spellings = {"--layout"},
                     .value_name = "data=N,pipeline=N,spatial=N",
                     .commands = kTrainAndVal}}),
      knob("zero_stage", &C::zero_stage,
           "The processes of the data axis share out the optimizer's state "
           "and the averaged weights (1), gradients too (2), parameters too "
           "(3), or nothing (0), so that each holds less. Without a data "
           "axis it changes nothing.",
           {.low = 0,
            .high = 3,
            .of_plan = true,
            .flag = {.spellings = {"--zero"}, .value_name = "0..3"}}),
      knob("micro_batch_size", &C::micro_batch_size,
           "At most this many images of one process go through the network "
           "at once: a multiple of the batch-norm group, or the process's "
           "whole share of the batch. It changes no result. 0 leaves the "
           "choice to the planner.",
           {.unit = "images",
            .low = 0,
            .high = 1'000'000,
            .of_plan = true,
            .flag = {.spellings = {"--micro-batch"}, .value_name = "K"}}),
      knob("activations", &C::activations,
           "This is what a layer keeps in forward for backward. keep: "
           "everything; lean: convolution outputs, from which the rest is "
           "derived; recompute: its inputs, so that it runs twice; offload: "
           "nothing but a temporary file of at most host_memory_limit bytes. "
           "Less memory takes more time, with the same results. auto keeps "
           "everything, or under memory_limit what fits and takes least "
           "time, layer by layer.",
           {.choices = {"auto", "keep", "lean", "recompute", "offload"},
            .of_plan = true,
            .flag = {.spellings = {"--activations"},
                     .value_name = "auto|keep|lean|recompute|offload"}}),
      knob("augment_on", &C::augment_on,
           "Training samples are rendered by the loader's threads (cpu), or "
           "by a kernel on the card (device), to the same bytes. auto is the "
           "card where there is one: it was 1.28 times as fast as 12 threads "
           "for yolov5s on an H200.",
           {.flag = {.spellings = {"--augment-on"},
                     .value_name = "auto|cpu|device"}}),
      knob("backend", &C::backend,
           "The processes exchange tensors with this library. auto takes "
           "nccl on cards and gloo on the CPU; gloo on cards goes through "
           "the host. auto never takes mpi, which cannot survive the loss of "
           "a process.",
           {.choices = names_in(plan::kBackends),
            .flag = {.spellings = {"--backend"},
                     .value_name = joined(names_in(plan::kBackends), "|"),
                     .commands = kTrainAndVal}}),
      knob("threads", &C::threads,
           "Each process computes with this many threads; 0 is cores / "
           "processes. Results are bit-identical for equal threads only.",
           {.unit = "threads",
            .low = 0,
            .high = 4'096,
            .flag = {.spellings = {"--threads"},
                     .value_name = "N",
                     .commands = kTrainAndVal}}),
      knob("loader_threads", &C::loader_threads,
           "Each process reads and augments images with this many threads "
           "(YOLOv5's --workers).",
           {.unit = "threads",
            .low = 0,
            .high = 4'096,
            .flag = {.spellings = {"--workers"},
                     .value_name = "N",
                     .commands = kTrainAndVal}}),
      knob("memory_limit", &C::memory_limit,
           "Each process's tensors (on a card, all that the process has "
           "there) may take this many bytes, for example 2GiB: a small card, "
           "emulated. A step that does not fit is tried again with layers "
           "recomputed; if that does not fit either, the run stops before "
           "the step. 0 is no limit.",
           {.unit = "bytes",
            .low = 0,
            .is_byte_size = true,
            .of_plan = true,
            .flag = {.spellings = {"--memory-limit"}, .value_name = "SIZE"}}),
      knob("inject", &C::inject,
           "Something goes wrong on purpose, for tests: " + faults_text() +
               ". Several are separated by ';'.",
           {.flag = {.spellings = {"--inject"}, .value_name = "FAULT"}}),
      knob("host_memory_limit", &C::host_memory_limit,
           "The loader's queues of a process may take this many bytes, for "
           "example 2GiB, and so may its file of offloaded activations. 0 is "
           "1 GiB for the queues, and what the disk has for the file.",
           {.unit = "bytes",
            .low = 0,
            .is_byte_size = true,
            .flag = {.spellings = {"--host-memory-limit"},
                     .value_name = "SIZE",
                     .commands = kTrainAndVal}}),
      knob("synthetic_input", &C::synthetic_input,
           "The run trains on fixed random images in memory, with 8 boxes "
           "each and 80 classes, for benchmarks. An epoch is 1,000 steps, "
           "and data is ignored.",
           {.flag = {.spellings = {"--synthetic-input"}}}),
      knob("label_counts", &C::label_counts,
           "A plan's bytes follow from how many boxes the training images "
           "have: '0x12 3x40' is 12 images without a box and 40 with three. "
           "It is read from the label files where a plan needs it. Empty "
           "assumes 100 boxes in every image."),
      knob("value_range", &C::value_range,
           "Images have 16 bits, scaled from these values of their files: "
           "low,high, for all bands or each. range of data.yaml fills it in.",
           {.defines_steps = true}),
  };
}

std::vector<Knob> what_is_written() {
  return {
      knob("project", &C::project,
           "Runs get their folders in this one; empty is runs/train or "
           "runs/val.",
           {.of_start = true,
            .flag = {.spellings = {"--project"},
                     .value_name = "DIR",
                     .commands = kTrainAndVal}}),
      knob("name", &C::name,
           "The run's folder below project has this name, or exp2, exp3, ... "
           "when it is taken.",
           {.of_start = true,
            .flag = {.spellings = {"--name"},
                     .value_name = "NAME",
                     .commands = kTrainAndVal}}),
      knob("exist_ok", &C::exist_ok,
           "The run writes into project/name even if it is there; an older "
           "run there is replaced at the first committed step.",
           {.of_start = true,
            .flag = {.spellings = {"--exist-ok"}, .commands = kTrainAndVal}}),
      knob("resume", &C::resume,
           "The run in this folder continues from its newest valid "
           "checkpoint. Without a folder, it is the newest run (the word "
           "'latest').",
           {.flag = {.spellings = {"--resume"},
                     .value_name = "[DIR]",
                     .value_is_optional = true,
                     .in_coordinator = false}}),
      knob("noval", &C::noval, "Validation runs after the last epoch only.",
           {.flag = {.spellings = {"--noval"}}}),
      knob("nosave", &C::nosave,
           "The run writes no checkpoint before its end, except those of "
           "checkpoint_every_steps.",
           {.flag = {.spellings = {"--nosave"}}}),
      knob("noplots", &C::noplots,
           "The run draws no pictures: curves, the confusion matrix, labels, "
           "and batches with their boxes.",
           {.flag = {.spellings = {"--noplots"}, .commands = kTrainAndVal}}),
      knob("noindex", &C::noindex,
           "The run opens every image and label file when it starts, and keeps "
           "nothing of it. Otherwise what was found out lies in "
           "~/.cache/headroom for the next start, which opens what changed.",
           {.flag = {.spellings = {"--noindex"}, .commands = kTrainAndVal}}),
      knob("save_period", &C::save_period,
           "The weights of one epoch in N are kept, too; -1 keeps none of "
           "these.",
           {.unit = "epochs",
            .low = -1,
            .high = 1'000'000'000,
            .flag = {.spellings = {"--save-period"}, .value_name = "EPOCHS"}}),
      knob("checkpoint_every_steps", &C::checkpoint_every_steps,
           "A checkpoint is written each time that the run has committed "
           "this many steps; 0 writes one after each epoch and every 60 s.",
           {.unit = "steps", .low = 0, .high = kMostSteps}),
      knob("keep_checkpoints", &C::keep_checkpoints,
           "This many checkpoints stay on disk, the newest ones; at least 2, "
           "so that a damaged one costs no run.",
           {.unit = "checkpoints", .low = 2, .high = 1'000'000}),
      knob("memory_trace", &C::memory_trace,
           "The run writes what every process's tensors are during the first "
           "steps to this file, for ui.perfetto.dev or chrome://tracing: "
           "bytes by their purpose, and the step's phases. A picture goes "
           "beside it, FILE with .png.",
           {.flag = {.spellings = {"--memory-trace"}, .value_name = "FILE"}}),
      knob("memory_trace_steps", &C::memory_trace_steps,
           "The memory trace takes this many steps, counted from where this "
           "run starts or resumes.",
           {.unit = "steps", .low = 1, .high = 1'000}),
  };
}

std::vector<Knob> validation() {
  return {
      knob("task", &C::task,
           "headroom val evaluates this split of the data set.",
           {.choices = {"train", "val", "test"},
            .absent_choices =
                {{"speed", "leave it out, and take the time of the command"},
                 {"study",
                  "leave it out, and run headroom val once for each --img"}},
            .flag = {.spellings = {"--task"},
                     .value_name = "train|val|test",
                     .commands = kVal}}),
      knob("confidence_threshold", &C::confidence_threshold,
           "Boxes with a lower score are dropped.",
           {.low = 0,
            .high = 1,
            .flag = {.spellings = {"--conf-thres"},
                     .value_name = "X",
                     .commands = kVal}}),
      knob("nms_iou_threshold", &C::nms_iou_threshold,
           "Of two boxes of a class with a larger IoU (their overlap: "
           "intersection over union) the weaker one is dropped.",
           {.low = 0,
            .high = 1,
            .flag = {.spellings = {"--iou-thres"},
                     .value_name = "X",
                     .commands = kVal}}),
      knob("max_detections", &C::max_detections,
           "At most this many boxes of an image are kept, the strongest ones.",
           {.unit = "boxes per image",
            .low = 1,
            .high = 30'000,
            .flag = {.spellings = {"--max-det"},
                     .value_name = "N",
                     .commands = kVal}}),
      knob("save_txt", &C::save_txt,
           "The boxes found in each image are written to labels/NAME.txt in "
           "the run's folder: class cx cy w h, as fractions of the image.",
           {.flag = {.spellings = {"--save-txt"}, .commands = kVal}}),
      knob("save_conf", &C::save_conf,
           "With save_txt, each line has the score as a sixth value.",
           {.flag = {.spellings = {"--save-conf"}, .commands = kVal}}),
      knob("save_json", &C::save_json,
           "The boxes found are written as a COCO result file, "
           "predictions.json. Its ids are those of the annotations where the "
           "data set is COCO's JSON; else they are file names, and classes "
           "from 0 or, for COCO's class names, COCO's ids.",
           {.flag = {.spellings = {"--save-json"}, .commands = kVal}}),
      knob("tile_height", &C::tile_height,
           "headroom val looks at tiles of this height instead of the whole "
           "image at once, and merges their boxes, as headroom detect does. "
           "--tile S sets both sides, --tile HEIGHT WIDTH each. 0 takes "
           "images as a whole.",
           {.unit = "pixels",
            .low = 0,
            .high = 65'536,
            .flag = {.spellings = {"--tile"},
                     .value_name = "HEIGHT [WIDTH]",
                     .commands = kVal,
                     .second_key = "tile_width"}}),
      knob("tile_width", &C::tile_width,
           "The tiles have this width; --tile sets it.",
           {.unit = "pixels", .low = 0, .high = 65'536}),
      knob("tile_overlap", &C::tile_overlap,
           "Tiles overlap by at least this part of their side, which should "
           "be as large as the largest object.",
           {.low = 0,
            .high = 0.9,
            .flag = {.spellings = {"--tile-overlap"},
                     .value_name = "X",
                     .commands = kVal}}),
  };
}

}  // namespace

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> table = [] {
    const std::string what = "Model, data and batch";
    std::vector<Knob> all;
    for (const auto& [group, part] : {std::pair(what, what_to_train()),
                                      {"How to train", hyperparameter_knobs()},
                                      {what, anchors_and_batch()},
                                      {"How to train", how_to_train()},
                                      {"Where it runs", where_it_runs()},
                                      {"What is written", what_is_written()},
                                      {"How to evaluate", validation()}}) {
      for (const Knob& knob : part) {
        all.push_back(knob);
        all.back().group = group;
      }
    }
    return all;
  }();
  return table;
}

}  // namespace headroom::configs
