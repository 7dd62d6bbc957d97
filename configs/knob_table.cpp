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
      knob("command", &C::command, "train or val.",
           {.choices = {"train", "val"}}),
      knob("data", &C::data,
           "The data set: a data.yaml in any of YOLOv5's forms (its folders "
           "or lists of images, its class names). Nothing is ever "
           "downloaded.",
           {.flag = {.spellings = {"--data"},
                     .value_name = "DATA.YAML",
                     .commands = kTrainAndVal}}),
      knob("cfg", &C::cfg,
           "The model: a YAML file of layers, or the name of a shipped one: "
           "yolov5n s m l x, yolov5n6 s6 m6 l6 x6. Left out together with "
           "weights: yolov5s from scratch.",
           {.flag = {.spellings = {"--cfg"},
                     .value_name = "MODEL",
                     .commands = kTrainAndVal}}),
      knob("weights", &C::weights,
           "Weights to start from (train) or to evaluate (val): a .safetensors "
           "file under YOLOv5's tensor names, or a checkpoint of YOLOv5 or "
           "ultralytics (.pt), of which nothing is executed; empty starts "
           "from scratch.",
           {.flag = {.spellings = {"--weights"},
                     .value_name = "FILE",
                     .commands = kTrainAndVal}}),
      knob("teacher", &C::teacher,
           "Weights of a larger network of the same classes and anchors, "
           "whose heads the run also learns from (hyp.distill): a "
           ".safetensors file or YOLOv5's checkpoint, of a shipped model. On "
           "the CPU, without pipelines and split images.",
           {.defines_steps = true,
            .flag = {.spellings = {"--teacher"}, .value_name = "FILE"}}),
      knob("teacher_model", &C::teacher_model,
           "The teacher's model, read from its file when the run begins."),
      knob("teacher_digest", &C::teacher_digest,
           "XXH3-128 of the teacher's file, read likewise: the run goes on "
           "with the same one or not at all."),
      knob("hyp_file", &C::hyp_file,
           "Hyper-parameters: YOLOv5's hyp.yaml, or a shipped set: "
           "scratch-low, scratch-med, scratch-high, no-augmentation, voc, "
           "objects365. The flag outranks run.yaml's hyper-parameters and is "
           "outranked by --set.",
           {.flag = {.spellings = {"--hyp"}, .value_name = "HYP.YAML"}}),
  };
}

std::vector<Knob> anchors_and_batch() {
  return {
      knob("noautoanchor", &C::noautoanchor,
           "Keep the model's anchors. Without it, anchors that match no "
           "more than 0.98 of the training boxes are replaced by ones found "
           "from the boxes, if these match more.",
           {.of_start = true, .flag = {.spellings = {"--noautoanchor"}}}),
      knob("anchors", &C::anchors,
           "The anchors that the run trains with, width,height in pixels, "
           "levels separated by ';': '10,13 16,30 33,23; 30,61 ...'. They "
           "are used as they are given. Empty: the model's (of weights "
           "without cfg: the file's), or what is found from the boxes is "
           "written here.",
           {.defines_steps = true}),
      knob("anchors_reason", &C::anchors_reason,
           "Where anchors come from; a sentence, filled in by whoever starts "
           "the run."),
      knob("image_height", &C::image_height,
           "Height of the network's input, rounded up to the model's largest "
           "stride. --img S sets both sides, --img HEIGHT WIDTH each. Default "
           "of val: as trained.",
           {.unit = "pixels",
            .low = 64,
            .high = 65'536,
            .flag = {.spellings = {"--img", "--imgsz", "--img-size"},
                     .value_name = "HEIGHT [WIDTH]",
                     .commands = kTrainAndVal,
                     .second_key = "image_width"}}),
      knob("image_width", &C::image_width,
           "Width of the network's input, rounded up likewise.",
           {.unit = "pixels", .low = 64, .high = 65'536}),
      knob("global_batch_size", &C::global_batch_size,
           "Images per step over all processes together, as YOLOv5's "
           "--batch. Changing the number of processes does not change it. "
           "-1: the most that fit into memory_limit at once, and no more "
           "than there are.",
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
      knob("epochs", &C::epochs, "Passes over the training images.",
           {.unit = "epochs",
            .low = 1,
            .high = 1'000'000'000,
            .flag = {.spellings = {"--epochs"}, .value_name = "N"}}),
      knob("max_steps", &C::max_steps,
           "End, with a checkpoint, when the run has this many committed "
           "steps, resumed ones included; 0 is no limit.",
           {.unit = "steps",
            .low = 0,
            .high = kMostSteps,
            .flag = {.spellings = {"--max-steps"}, .value_name = "N"}}),
      knob("optimizer", &C::optimizer,
           "SGD with Nesterov momentum; Adam; AdamW, whose weight decay "
           "bypasses the gradient. hyp.momentum is Adam's beta1.",
           {.choices = names_in(kOptimizers),
            .defines_steps = true,
            .flag = {.spellings = {"--optimizer"}, .value_name = "NAME"}}),
      knob("cos_lr", &C::cos_lr,
           "Let the learning rate fall along a cosine instead of a line.",
           {.flag = {.spellings = {"--cos-lr"}}}),
      knob("label_smoothing", &C::label_smoothing,
           "Train the class scores towards 1 - e/2 and e/2 instead of 1 and "
           "0.",
           {.low = 0,
            .high = 1,
            .flag = {.spellings = {"--label-smoothing"}, .value_name = "E"}}),
      knob("single_cls", &C::single_cls,
           "Treat all classes of the data set as one.",
           {.defines_steps = true,
            .flag = {.spellings = {"--single-cls"}, .commands = kTrainAndVal}}),
      knob("random_crop", &C::random_crop,
           "Train on windows of the network's size, at a new random place of "
           "an image each time, where an image is larger, instead of "
           "shrinking it. Boxes are clipped; they stay where at least 0.3 of "
           "their area is seen.",
           {.defines_steps = true, .flag = {.spellings = {"--random-crop"}}}),
      knob("image_weights", &C::image_weights,
           "Draw the images of an epoch with replacement, each as likely as "
           "its labels' classes are rare and badly found (by mAP in the "
           "newest validation). Images without labels are never drawn.",
           {.defines_steps = true,
            .flag = {.spellings = {"--image-weights"},
                     .listed_behind = "single_cls"}}),
      knob("rect", &C::rect,
           "Train on rectangular batches of images of like aspect: less "
           "padding, no mosaic, no shuffling.",
           {.defines_steps = true,
            .flag = {.spellings = {"--rect"}, .listed_behind = "single_cls"}}),
      knob("close_mosaic", &C::close_mosaic,
           "Train the last so many epochs without mosaics and mixup, on "
           "images as they are in use.",
           {.unit = "epochs",
            .low = 0,
            .high = 1'000'000'000,
            .flag = {.spellings = {"--close-mosaic"}, .value_name = "EPOCHS"}}),
      knob("multi_scale", &C::multi_scale,
           "Train each batch at a size of its own, 0.5 to 1.5 times --img; "
           "plans count on the largest.",
           {.flag = {.spellings = {"--multi-scale"}}}),
      knob("freeze", &C::freeze,
           "The first so many layers of the model do not learn; 10 is the "
           "backbone. Their batch-norm statistics still move, as in YOLOv5.",
           {.unit = "layers",
            .low = 0,
            .high = 10'000,
            .flag = {.spellings = {"--freeze"},
                     .value_name = "LAYERS",
                     .takes_row = true}}),
      knob("seed", &C::seed,
           "Every random draw follows from it: initial weights, order, "
           "augmentation. Equal seeds give equal runs.",
           {.defines_steps = true,
            .flag = {.spellings = {"--seed"}, .value_name = "N"}}),
      knob("precision", &C::precision,
           "auto: bf16 on cards that compute in it, else fp32; a run keeps it. "
           "bf16, fp16: maps and convolutions of 16 bits beside weights, sums "
           "and losses of 32. fp64 (slow) checks equality between layouts.",
           {.flag = {.spellings = {"--precision"},
                     .value_name = joined(names_in(kPrecisions), "|"),
                     .commands = kTrainAndVal}}),
      knob("patience", &C::patience,
           "Stop after so many epochs without a better fitness; 0 never "
           "stops early.",
           {.unit = "epochs",
            .low = 0,
            .high = 1'000'000'000,
            .flag = {.spellings = {"--patience"}, .value_name = "EPOCHS"}}),
      knob("batch_norm_group_size", &C::batch_norm_group_size,
           "Consecutive images of the global batch that share batch-norm "
           "statistics; a remainder is a smaller group. Part of the run's "
           "mathematics, not of its layout. 0: max(1, round(batch / 16)) "
           "groups, whose sizes differ by at most one.",
           {.unit = "images",
            .low = 0,
            .high = 1'000'000,
            .defines_steps = true,
            .flag = {.spellings = {"--bn-group"}, .value_name = "K"}}),
      knob("sync_batch_norm", &C::sync_batch_norm,
           "One batch-norm group per global batch, as YOLOv5's --sync-bn: "
           "batch_norm_group_size becomes the batch.",
           {.defines_steps = true, .flag = {.spellings = {"--sync-bn"}}}),
      knob("skip_non_finite", &C::skip_non_finite,
           "Skip the update of a step whose gradient is not finite, and say "
           "so; otherwise the run stops at the step before it."),
  };
}

std::vector<Knob> where_it_runs() {
  return {
      knob("device", &C::device,
           "cpu (also where it is empty), or NVIDIA cards of each machine by "
           "number, as in 0 or 0,1: a process for each. Training on them has "
           "not run on a real card yet.",
           {.flag = {.spellings = {"--device"},
                     .value_name = "cpu|0|0,1",
                     .commands = kTrainAndVal}}),
      knob("tf32", &C::tf32,
           "Let a card round the factors of float32 products to TF32 (10 "
           "bits of mantissa), as PyTorch does: faster, and no longer "
           "float32's losses.",
           {.flag = {.spellings = {"--tf32"}, .commands = kTrainAndVal}}),
      knob("deterministic", &C::deterministic,
           "Have a card's libraries choose only algorithms that give the "
           "same bits again; the CPU's always do.",
           {.flag = {.spellings = {"--deterministic"}}}),
      knob("cuda_graphs", &C::cuda_graphs,
           "Capture a micro-batch's forward, loss and backward once and give "
           "them to the card as a whole: for small models and images, where "
           "the host's calls outlast the kernels. Training only; images of one "
           "size, whole models and images on each card.",
           {.flag = {.spellings = {"--cuda-graphs"}}}),
      knob("share_devices", &C::share_devices,
           "Several processes may take turns on one card: for tests. To "
           "NCCL each is then a host of its own."),
      knob("processes", &C::processes,
           "Worker processes on this machine (under mpirun or srun: per "
           "slot). Left out: what layout asks for, otherwise 1.",
           {.unit = "processes",
            .low = 0,
            .high = kMostProcesses,
            .of_plan = true,
            .flag = {.spellings = {"--processes"},
                     .value_name = "N",
                     .commands = kTrainAndVal,
                     .in_coordinator = false}}),
      knob("min_processes", &C::min_processes,
           "With how many a run goes on when others are lost; with fewer it "
           "waits up to 10 minutes for them.",
           {.unit = "processes",
            .low = 1,
            .high = kMostProcesses,
            .flag = {.spellings = {"--min-processes"}, .value_name = "N"}}),
      knob("layout", &C::layout,
           "How a step is split over processes: data shares the images out, "
           "pipeline the model's layers, spatial the rows of each image. "
           "data=2,pipeline=1,spatial=1 in any order; an axis not named is "
           "1; their product is the number of processes. Changes no result.",
           {.of_plan = true,
            .flag = {.spellings = {"--layout"},
                     .value_name = "data=N,pipeline=N,spatial=N",
                     .commands = kTrainAndVal}}),
      knob("zero_stage", &C::zero_stage,
           "What the processes of the data axis hold only a share of: 1 the "
           "optimizer's state and the averaged weights, 2 gradients too, 3 "
           "parameters too; 0 nothing. Without a data axis it changes "
           "nothing.",
           {.low = 0,
            .high = 3,
            .of_plan = true,
            .flag = {.spellings = {"--zero"}, .value_name = "0..3"}}),
      knob("micro_batch_size", &C::micro_batch_size,
           "At most so many images of one process go through the network at "
           "once: a multiple of the batch-norm group, or a process's whole "
           "share of the batch. Changes no result. 0 chooses it.",
           {.unit = "images",
            .low = 0,
            .high = 1'000'000,
            .of_plan = true,
            .flag = {.spellings = {"--micro-batch"}, .value_name = "K"}}),
      knob("activations", &C::activations,
           "What a layer of the model keeps for its backward: keep "
           "everything; lean: convolution outputs, the rest is derived from "
           "them; recompute: its inputs, and it runs twice; offload: "
           "nothing, but a temporary file of at most host_memory_limit "
           "bytes. Less memory, more time, the same results. auto keeps "
           "everything, or under memory_limit what takes least time and "
           "fits, layer by layer.",
           {.choices = {"auto", "keep", "lean", "recompute", "offload"},
            .of_plan = true,
            .flag = {.spellings = {"--activations"},
                     .value_name = "auto|keep|lean|recompute|offload"}}),
      knob("augment_on", &C::augment_on,
           "Where training samples are rendered: by the loader's threads "
           "(cpu), or by a kernel on the card (device), to the same bytes. "
           "auto is cpu: which is faster has not been measured on a card "
           "yet.",
           {.flag = {.spellings = {"--augment-on"},
                     .value_name = "auto|cpu|device"}}),
      knob("backend", &C::backend,
           "What the processes exchange tensors with. auto is nccl on cards, "
           "gloo on the CPU; gloo on cards goes through the host. It never "
           "chooses mpi, which cannot survive the loss of a process.",
           {.choices = names_in(plan::kBackends),
            .flag = {.spellings = {"--backend"},
                     .value_name = joined(names_in(plan::kBackends), "|"),
                     .commands = kTrainAndVal}}),
      knob("threads", &C::threads,
           "Compute threads per process; 0 is cores / processes. Part of the "
           "run's definition: results are bit-identical for equal threads "
           "only.",
           {.unit = "threads",
            .low = 0,
            .high = 4'096,
            .flag = {.spellings = {"--threads"},
                     .value_name = "N",
                     .commands = kTrainAndVal}}),
      knob("loader_threads", &C::loader_threads,
           "Threads per process that read and augment images (YOLOv5's "
           "--workers).",
           {.unit = "threads",
            .low = 0,
            .high = 4'096,
            .flag = {.spellings = {"--workers"},
                     .value_name = "N",
                     .commands = kTrainAndVal}}),
      knob("memory_limit", &C::memory_limit,
           "Bound of each process's tensors, on a device of all that it has "
           "there, for example 2GiB: a small card, emulated. A step that "
           "does not fit is repeated with layers recomputed; if that does "
           "not fit either, the run stops at the step before. 0 is no bound.",
           {.unit = "bytes",
            .low = 0,
            .is_byte_size = true,
            .of_plan = true,
            .flag = {.spellings = {"--memory-limit"}, .value_name = "SIZE"}}),
      knob("inject", &C::inject,
           "Lets something go wrong, for tests: " + faults_text() +
               ". Several are separated by ';'.",
           {.flag = {.spellings = {"--inject"}, .value_name = "FAULT"}}),
      knob("host_memory_limit", &C::host_memory_limit,
           "Bound per process of the loader's queues, and of the file of "
           "offloaded activations, for example 2GiB; 0 is 1 GiB for the "
           "queues and what the disk has for the file.",
           {.unit = "bytes",
            .low = 0,
            .is_byte_size = true,
            .flag = {.spellings = {"--host-memory-limit"},
                     .value_name = "SIZE",
                     .commands = kTrainAndVal}}),
      knob("synthetic_input", &C::synthetic_input,
           "For benchmarks: fixed random images with 8 boxes each, 80 "
           "classes, held in memory. An epoch is 1,000 steps, and data is "
           "ignored.",
           {.flag = {.spellings = {"--synthetic-input"}}}),
      knob("label_counts", &C::label_counts,
           "How many boxes the training images have, for the bytes of a "
           "plan: '0x12 3x40' is 12 images without a box and 40 with three. "
           "Read from the label files where memory_limit, a batch of -1 or "
           "headroom plan needs it; empty assumes 100 boxes in every image."),
  };
}

std::vector<Knob> what_is_written() {
  return {
      knob("project", &C::project,
           "Folder of runs; empty is runs/train or runs/val.",
           {.of_start = true,
            .flag = {.spellings = {"--project"},
                     .value_name = "DIR",
                     .commands = kTrainAndVal}}),
      knob("name", &C::name,
           "The run's folder below project; exp2, exp3, ... when it is "
           "taken.",
           {.of_start = true,
            .flag = {.spellings = {"--name"},
                     .value_name = "NAME",
                     .commands = kTrainAndVal}}),
      knob("exist_ok", &C::exist_ok,
           "Write into project/name even if it is there; an older run there "
           "gives way to the first committed step.",
           {.of_start = true,
            .flag = {.spellings = {"--exist-ok"}, .commands = kTrainAndVal}}),
      knob("resume", &C::resume,
           "Continue the run in this folder at its newest valid checkpoint. "
           "Without a folder: the newest run (the word 'latest').",
           {.flag = {.spellings = {"--resume"},
                     .value_name = "[DIR]",
                     .value_is_optional = true,
                     .in_coordinator = false}}),
      knob("noval", &C::noval, "Validate after the last epoch only.",
           {.flag = {.spellings = {"--noval"}}}),
      knob("nosave", &C::nosave, "Keep only the last checkpoint's weights.",
           {.flag = {.spellings = {"--nosave"}}}),
      knob("noplots", &C::noplots,
           "Draw no pictures: curves, confusion matrix, labels, batches with "
           "their boxes. They are drawn beside training and at its end.",
           {.flag = {.spellings = {"--noplots"}, .commands = kTrainAndVal}}),
      knob("save_period", &C::save_period,
           "Also keep the weights of one epoch in N; -1 does not.",
           {.unit = "epochs",
            .low = -1,
            .high = 1'000'000'000,
            .flag = {.spellings = {"--save-period"}, .value_name = "EPOCHS"}}),
      knob("checkpoint_every_steps", &C::checkpoint_every_steps,
           "Write a checkpoint every so many committed steps; 0 writes one "
           "after each epoch and every 60 s.",
           {.unit = "steps", .low = 0, .high = kMostSteps}),
      knob("keep_checkpoints", &C::keep_checkpoints,
           "Checkpoints that stay on disk, the newest first. At least 2, so "
           "that a damaged one costs no run.",
           {.unit = "checkpoints", .low = 2, .high = 1'000'000}),
      knob("memory_trace", &C::memory_trace,
           "Write what every process's tensors are during the first steps to "
           "this file, for ui.perfetto.dev or chrome://tracing: bytes by "
           "what they are for, and the step's phases; a picture goes beside "
           "it, FILE with .png.",
           {.flag = {.spellings = {"--memory-trace"}, .value_name = "FILE"}}),
      knob("memory_trace_steps", &C::memory_trace_steps,
           "Steps of memory_trace, counted from where this run starts or "
           "resumes.",
           {.unit = "steps", .low = 1, .high = 1'000}),
  };
}

std::vector<Knob> validation() {
  return {
      knob("task", &C::task, "The split that headroom val evaluates.",
           {.choices = {"train", "val", "test"},
            .absent_choices =
                {{"speed", "leave it out, and take the time of the command"},
                 {"study",
                  "leave it out, and run headroom val once for each --img"}},
            .flag = {.spellings = {"--task"},
                     .value_name = "train|val|test",
                     .commands = kVal}}),
      knob("confidence_threshold", &C::confidence_threshold,
           "Boxes below this score are dropped.",
           {.low = 0,
            .high = 1,
            .flag = {.spellings = {"--conf-thres"},
                     .value_name = "X",
                     .commands = kVal}}),
      knob("nms_iou_threshold", &C::nms_iou_threshold,
           "Of two boxes of a class that overlap more than this, the weaker "
           "is dropped.",
           {.low = 0,
            .high = 1,
            .flag = {.spellings = {"--iou-thres"},
                     .value_name = "X",
                     .commands = kVal}}),
      knob("max_detections", &C::max_detections,
           "The strongest so many boxes of an image are kept.",
           {.unit = "boxes per image",
            .low = 1,
            .high = 30'000,
            .flag = {.spellings = {"--max-det"},
                     .value_name = "N",
                     .commands = kVal}}),
      knob("save_txt", &C::save_txt,
           "Write what is found in each image to labels/NAME.txt of the "
           "run's folder: class cx cy w h, as fractions of the image.",
           {.flag = {.spellings = {"--save-txt"}, .commands = kVal}}),
      knob("save_conf", &C::save_conf,
           "With save_txt: a sixth value, the confidence.",
           {.flag = {.spellings = {"--save-conf"}, .commands = kVal}}),
      knob("save_json", &C::save_json,
           "Write what is found as a COCO result file, predictions.json: ids "
           "of the annotations where the data set is COCO's JSON, else file "
           "names and classes from 0, or COCO's ids for its names.",
           {.flag = {.spellings = {"--save-json"}, .commands = kVal}}),
      knob("tile_height", &C::tile_height,
           "headroom val looks at tiles of so many pixels of an image "
           "instead of all of it at once, and merges what they show, as "
           "headroom detect does. --tile S sets both sides, --tile HEIGHT "
           "WIDTH each. 0: images as a whole.",
           {.unit = "pixels",
            .low = 0,
            .high = 65'536,
            .flag = {.spellings = {"--tile"},
                     .value_name = "HEIGHT [WIDTH]",
                     .commands = kVal,
                     .second_key = "tile_width"}}),
      knob("tile_width", &C::tile_width, "Width of the tiles, likewise.",
           {.unit = "pixels", .low = 0, .high = 65'536}),
      knob("tile_overlap", &C::tile_overlap,
           "By how much of their side tiles overlap at least; as large as "
           "the largest thing sought.",
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
