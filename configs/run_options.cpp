// The options of a run, in the order of the help. The `advice` of a numeric
// option says what a larger or smaller value does; the default is in
// run_config.h.
#include "configs/fault.h"
#include "configs/options.h"
#include "configs/recipe.h"
#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

using C = RunConfig;
using H = Hyperparameters;
using Options = std::vector<Option>;

constexpr double kMost = 1'000'000;
constexpr double kMostEpochs = 1'000'000'000;
constexpr double kMostSteps = 1e15;
constexpr double kMostProcesses = 65'536;
constexpr double kMostThreads = 4'096;
constexpr double kMostPixels = 65'536;
constexpr NumberRange kShare = {0, 1};

const std::vector<std::string> kTrain = {"train", "plan", "coordinator"};
const std::vector<std::string> kTrainAndVal = {"train", "plan", "coordinator",
                                               "val"};
const std::vector<std::string> kVal = {"val"};

// A configuration key that a command-line flag can set too.
Option flag(std::string name, Option::Member member, const std::string& form,
            std::vector<std::string> commands, std::string advice,
            OptionRules rules = {}) {
  Option made =
      option(form, std::move(commands), std::move(advice), std::move(rules));
  made.key = std::move(name);
  made.member = member;
  return made;
}

// A configuration key without a flag, for --set and run.yaml only.
Option key(std::string name, Option::Member member, std::string advice,
           OptionRules rules = {}) {
  return flag(std::move(name), member, "", {}, std::move(advice),
              std::move(rules));
}

// "oom@rank=1,step=7,allocation=40 (an allocation fails), ..."
std::string faults_text() {
  return joined(fault_descriptions(), ", ", [](const FaultDescription& one) {
    return std::string(one.example) + " (" + one.does + ")";
  });
}

Options model_and_data() {
  return {
      key("command", &C::command,
          "The run trains (train), or only evaluates weights (val).",
          {.choices = {"train", "val"}}),
      flag("data", &C::data, "--data DATA.YAML", kTrainAndVal,
           "The data set is a data.yaml in any form that YOLOv5 takes: folders "
           "or lists of images, and class names. Nothing is ever downloaded."),
      flag("cfg", &C::cfg, "--cfg MODEL", kTrainAndVal,
           "The model is a YAML file of layers, or the name of a shipped one: "
           "yolov5n s m l x, yolov5n6 s6 m6 l6 x6, or a variant such as "
           "yolov5s-p2. A larger one finds more and takes more time and "
           "memory. Without cfg and weights, yolov5s is trained from scratch."),
      flag("weights", &C::weights, "--weights FILE", kTrainAndVal,
           "Training starts from these weights, and val evaluates them: a "
           ".safetensors file with YOLOv5's tensor names, or a checkpoint of "
           "YOLOv5 (.pt), of which no code is executed. A name such as "
           "yolov5n.pt is also found where headroom fetch stored it. Empty "
           "starts from scratch, from random weights."),
      flag("teacher", &C::teacher, "--teacher FILE", kTrain,
           "The run also learns from the outputs of this larger network with "
           "the same classes and anchors (distillation; hyp.distill is its "
           "gain). The file is .safetensors or YOLOv5's checkpoint, of a "
           "shipped model. It works on the CPU, without pipeline and spatial "
           "layouts.",
           {.defines_steps = true}),
      key("teacher_model", &C::teacher_model,
          "The run fills in the teacher's model, from its file, when it "
          "begins."),
      key("teacher_digest", &C::teacher_digest,
          "The run fills in the checksum (XXH3-128) of the teacher's file. A "
          "resumed run takes the same file or stops."),
      flag("hyp_file", &C::hyp_file, "--hyp HYP.YAML", kTrain,
           "Hyper-parameters come from this file, YOLOv5's hyp.yaml, or from a "
           "shipped set: scratch-low, scratch-med, scratch-high, "
           "no-augmentation, voc, objects365. Small models do best with "
           "scratch-low, and large ones with scratch-high, which augments "
           "more. The flag outranks run.yaml, and --set outranks the flag."),
  };
}

Options hyperparameters() {
  return {
      key("hyp.lr0", &H::lr0,
          "The learning rate begins at this value. More learns faster until "
          "the loss rises or is not finite; Adam needs about a tenth of SGD's.",
          {.range = {0}}),
      key("hyp.lrf", &H::lrf,
          "The learning rate ends at this fraction of lr0. Less settles the "
          "weights more in the last epochs.",
          {.range = {0}}),
      key("hyp.momentum", &H::momentum,
          "SGD has this momentum (Nesterov), and Adam this beta1. More "
          "averages over more steps.",
          {.range = kShare}),
      key("hyp.weight_decay", &H::weight_decay,
          "Weights of convolutions decay by this factor; biases and batch norm "
          "do not. More holds a small data set from being learned by heart.",
          {.range = {0}}),
      key("hyp.warmup_epochs", &H::warmup_epochs,
          "The warm-up, in which the learning rate and the momentum move to "
          "their values, lasts this long, but at least 100 steps; 0 means no "
          "warm-up at all. More helps where the first steps diverge.",
          {.unit = "epochs", .range = {0}}),
      key("hyp.warmup_momentum", &H::warmup_momentum,
          "The momentum has this value at the first step of the warm-up.",
          {.range = kShare}),
      key("hyp.warmup_bias_lr", &H::warmup_bias_lr,
          "The biases' learning rate has this value at the first step of the "
          "warm-up.",
          {.range = {0}}),
      key("hyp.box", &H::box,
          "The box term of the loss has this gain (factor). More fits boxes "
          "tighter, at the cost of the other terms.",
          {.range = {0}}),
      key("hyp.cls", &H::cls,
          "The class term of the loss has this gain. More tells classes apart "
          "better, at the cost of the other terms.",
          {.range = {0}}),
      key("hyp.cls_pw", &H::cls_pw,
          "Positives weigh this much in the class term: one number for all "
          "classes, one for each (1,2,0.5, in the order of names), some by "
          "name (cat=2, the others 1), or balanced: labels / (classes x labels "
          "of the class). More finds more of a rare class, and more that are "
          "none.",
          {.takes_list = true}),
      key("hyp.obj", &H::obj,
          "The objectness term of the loss (is there an object?) has this "
          "gain.",
          {.range = {0}}),
      key("hyp.obj_pw", &H::obj_pw,
          "Positives weigh this much in the objectness term. More finds more "
          "objects, and more that are none.",
          {.range = {0}}),
      key("hyp.iou_t", &H::iou_t, "This is unused, as in YOLOv5.",
          {.range = kShare}),
      key("hyp.anchor_t", &H::anchor_t,
          "An anchor matches a box when every side differs by less than this "
          "factor. More gives a box more anchors to learn from, of worse fit.",
          {.range = {1}}),
      key("hyp.anchors", &H::anchors,
          "Any other number than 0 replaces the model's anchors by ones found "
          "from the training boxes, however well they fit; rounded, it must be "
          "the number that the model has. 0 judges the model's first.",
          {.unit = "anchors per level", .range = {0, 100}}),
      key("hyp.fl_gamma", &H::fl_gamma,
          "Focal loss, which weighs hard examples more, has this exponent; 0 "
          "is off.",
          {.range = {0, 100}}),
      key("hyp.anchor_free_box", &H::anchor_free_box,
          "The box term of a model without anchors has this gain, which no "
          "number of classes or size of image scales. More fits boxes tighter, "
          "at the cost of the other terms. In a hyp file with dfl it is box.",
          {.range = {0}}),
      key("hyp.anchor_free_cls", &H::anchor_free_cls,
          "The class term of a model without anchors has this gain. In a hyp "
          "file with dfl it is cls.",
          {.range = {0}}),
      key("hyp.dfl", &H::dfl,
          "The term of a model without anchors for the distances of a box's "
          "sides (distribution focal loss) has this gain.",
          {.range = {0}}),
      key("hyp.hsv_h", &H::hsv_h,
          "Hue changes by a random factor of 1 plus or minus this. Less where "
          "colour tells classes apart.",
          {.range = kShare}),
      key("hyp.add_hue", &H::add_hue,
          "1 adds up to hsv_h of a turn to the hue, plus or minus, so that "
          "reds change as much as other colours; 0 multiplies, as in YOLOv5.",
          {.range = kShare}),
      key("hyp.hsv_s", &H::hsv_s,
          "Saturation changes by a random factor of 1 plus or minus this.",
          {.range = kShare}),
      key("hyp.hsv_v", &H::hsv_v,
          "Brightness changes by a random factor of 1 plus or minus this.",
          {.range = kShare}),
      key("hyp.degrees", &H::degrees,
          "Images rotate at random by up to this, plus or minus. More suits "
          "pictures from above, which have no upside.",
          {.unit = "degrees", .range = {0, 180}}),
      key("hyp.translate", &H::translate,
          "Images shift at random by up to this, plus or minus.",
          {.unit = "fraction of the image", .range = kShare}),
      key("hyp.scale", &H::scale,
          "Images are scaled at random by 1 plus or minus this. More suits "
          "objects that are seen from near and far.",
          {.unit = "gain", .range = kShare}),
      key("hyp.shear", &H::shear,
          "Images are sheared at random by up to this, plus or minus.",
          {.unit = "degrees", .range = {0, 89}}),
      key("hyp.perspective", &H::perspective,
          "The perspective changes at random by up to this, plus or minus.",
          {.range = {0, 0.001}}),
      key("hyp.flipud", &H::flipud,
          "Images are flipped upside down. 0.5 suits pictures from above.",
          {.unit = "probability", .range = kShare}),
      key("hyp.fliplr", &H::fliplr,
          "Images are flipped left to right. 0 where left and right differ, as "
          "in letters.",
          {.unit = "probability", .range = kShare}),
      key("hyp.mosaic", &H::mosaic,
          "Training joins four images into one (a mosaic), never with --rect.",
          {.unit = "probability", .range = kShare}),
      key("hyp.mixup", &H::mixup, "A mosaic is blended with a second one.",
          {.unit = "probability", .range = kShare}),
      key("hyp.copy_paste", &H::copy_paste,
          "This part of a mosaic's objects is pasted into it once more, "
          "mirrored, where they hide little. It needs labels that are "
          "polygons, because boxes have no outline.",
          {.unit = "share of objects", .range = kShare}),
      key("hyp.mosaic9", &H::mosaic9,
          "A mosaic is made of nine images instead of four.",
          {.unit = "probability", .range = kShare}),
      key("hyp.blur", &H::blur,
          "A mean of 3 to 7 pixels square blurs the image, after the geometric "
          "changes.",
          {.unit = "probability", .range = kShare}),
      key("hyp.median_blur", &H::median_blur,
          "A median of 3 to 7 pixels square smooths the image.",
          {.unit = "probability", .range = kShare}),
      key("hyp.gray", &H::gray, "The image loses all colour.",
          {.unit = "probability", .range = kShare}),
      key("hyp.clahe", &H::clahe,
          "The brightness of 8 x 8 parts of the image is spread (CLAHE).",
          {.unit = "probability", .range = kShare}),
      key("hyp.distill", &H::distill,
          "The teacher's term of the loss has this gain; it counts with "
          "--teacher only.",
          {.range = {0}}),
  };
}

Options anchors_and_batch() {
  return {
      flag("noautoanchor", &C::noautoanchor, "--noautoanchor", kTrain,
           "The run keeps the model's anchors, the box shapes that predictions "
           "start from. Otherwise anchors that match at most 0.98 of the "
           "training boxes are replaced by ones found from the boxes, if these "
           "match more.",
           {.of_start = true}),
      key("anchors", &C::anchors,
          "The run trains with exactly these anchors: width,height in pixels, "
          "levels separated by ';', as in '10,13 16,30 33,23; 30,61 ...'. "
          "Where it is empty, the run fills in the model's (without cfg: those "
          "of the weights' file) or what it found from the boxes.",
          {.defines_steps = true}),
      key("anchors_reason", &C::anchors_reason,
          "The run fills in where its anchors come from, as a sentence."),
      flag("image_height", &C::image_height,
           "--img, --imgsz, --img-size HEIGHT [WIDTH]", kTrainAndVal,
           "The network's input has this height, rounded up to a multiple of "
           "the model's largest stride (usually 32). More finds smaller "
           "objects; time and memory grow with the area. --img S sets both "
           "sides, --img HEIGHT WIDTH each. val takes the size that the "
           "weights were trained at, if it is not given.",
           {.unit = "pixels",
            .range = {64, kMostPixels},
            .second_key = "image_width"}),
      key("image_width", &C::image_width,
          "The network's input has this width, rounded up likewise; --img sets "
          "it.",
          {.unit = "pixels", .range = {64, kMostPixels}}),
      flag("global_batch_size", &C::global_batch_size,
           "--batch, --batch-size N", kTrainAndVal,
           "One step trains on this many images over all processes together, "
           "as YOLOv5's --batch. The number of processes does not change it. "
           "More uses cards better and takes more memory; below 64, several "
           "steps make one update of the weights. -1 takes the most that fit "
           "into memory_limit at once, and no more than there are.",
           {.unit = "images", .range = {1, kMost}, .defines_steps = true}),
  };
}

Options how_to_train() {
  return {
      flag("epochs", &C::epochs, "--epochs N", kTrain,
           "The run passes over the training images this many times. 300 is "
           "usual from scratch, and less from weights or with many images; "
           "--patience ends a run that gets no better.",
           {.unit = "epochs", .range = {1, kMostEpochs}}),
      flag("max_steps", &C::max_steps, "--max-steps N", kTrain,
           "The run ends, with a checkpoint, when it has committed (finished) "
           "this many steps, those before a resume included; 0 is no limit.",
           {.unit = "steps", .range = {0, kMostSteps}}),
      flag("hours", &C::hours, "--time HOURS", kTrain,
           "Training ends at the first committed step after this time, with a "
           "last validation, and can be resumed. The time counts from where "
           "the run starts or resumes; 0 is no limit. The learning rate still "
           "follows epochs.",
           {.unit = "hours", .range = {0, kMost}}),
      key("ends_at", &C::ends_at,
          "The run fills in the second since 1970 at which hours are over."),
      flag("recipe", &C::recipe, "--recipe", kTrain,
           "Settings that are not given have these defaults: YOLOv5's, or "
           "those of the ultralytics package: optimizer auto, short_warmup, "
           "lr_of_epoch, carry_accumulation, close_mosaic 10, hyp.add_hue 1, "
           "best_metric mAP, nms_iou_threshold 0.7. The flag outranks a "
           "run.yaml, and --hyp and other flags outrank it.",
           {.choices = {kYolov5Recipe, kUltralyticsRecipe}, .of_start = true}),
      flag("optimizer", &C::optimizer, "--optimizer NAME", kTrain,
           "The optimizer is SGD with Nesterov momentum, Adam, or AdamW, whose "
           "weight decay bypasses the gradient. auto takes AdamW in runs of up "
           "to 10,000 iterations of 64 images, with lr0 0.01 / (4 + classes), "
           "else SGD with lr0 0.01; its momentum is 0.9, and the biases' rate "
           "begins at 0 like the others'. lr0, momentum and warmup_bias_lr "
           "other than their defaults stay.",
           {.choices = names_in(kOptimizers), .defines_steps = true}),
      flag("cos_lr", &C::cos_lr, "--cos-lr", kTrain,
           "The learning rate falls along a cosine instead of a line."),
      key("short_warmup", &C::short_warmup,
          "The warm-up lasts at most all epochs but one, and has no minimum of "
          "100 steps. Small data sets reach the full learning rate sooner."),
      key("lr_of_epoch", &C::lr_of_epoch,
          "Each epoch has the learning rate of its own place in the schedule. "
          "Otherwise epochs after the warm-up have that of the epoch before, "
          "as in YOLOv5."),
      key("carry_accumulation", &C::carry_accumulation,
          "Gradients that wait for an update at an epoch's end count in the "
          "next epoch. Otherwise they are dropped, as in YOLOv5."),
      flag("label_smoothing", &C::label_smoothing, "--label-smoothing E",
           kTrain,
           "Class scores are trained towards 1 - e/2 and e/2 instead of 1 and "
           "0; this is e. 0.1 helps where labels have wrong classes.",
           {.range = kShare}),
      flag("single_cls", &C::single_cls, "--single-cls", kTrainAndVal,
           "All classes of the data set count as one.",
           {.defines_steps = true}),
      flag("rect", &C::rect, "--rect", kTrain,
           "Training takes rectangular batches of images of similar aspect "
           "ratio: there is less padding, no mosaic and no shuffling.",
           {.defines_steps = true}),
      flag("image_weights", &C::image_weights, "--image-weights", kTrain,
           "The images of an epoch are drawn with replacement, each as likely "
           "as its labels' classes are rare and badly found (by mAP in the "
           "newest validation). Images without labels are never drawn.",
           {.defines_steps = true}),
      flag("fraction", &C::fraction, "--fraction F", kTrain,
           "Training uses this part of the training images, the same in every "
           "epoch, chosen by the seed; validation uses all of its own. Less "
           "tries a setting sooner.",
           {.range = {0.001, 1}, .defines_steps = true}),
      flag("random_crop", &C::random_crop, "--random-crop", kTrain,
           "Training cuts a window of the network's size out of every larger "
           "image, at a new random place each time, instead of shrinking the "
           "image. Boxes are clipped; they stay where 0.3 of their area is "
           "visible.",
           {.defines_steps = true}),
      flag("close_mosaic", &C::close_mosaic, "--close-mosaic EPOCHS", kTrain,
           "Training stops mosaics and mixup this many epochs before the end, "
           "so that the last images look as they do in use. About a tenth of "
           "the epochs is usual.",
           {.unit = "epochs", .range = {0, kMostEpochs}}),
      flag("multi_scale", &C::multi_scale, "--multi-scale", kTrain,
           "Each batch is trained at a size of its own, 0.5 to 1.5 times "
           "--img; plans count on the largest."),
      flag("freeze", &C::freeze, "--freeze LAYERS", kTrain,
           "The first layers of the model, this many, do not learn; 10 is the "
           "backbone. More trains faster and with less memory, and suits a "
           "small data set that is like the weights' own. Their batch-norm "
           "statistics still change, as in YOLOv5.",
           {.unit = "layers", .range = {0, 10'000}, .most_values = 10'000}),
      flag("seed", &C::seed, "--seed N", kTrain,
           "Every random draw follows from this number: initial weights, "
           "order, augmentation. Equal seeds give equal runs.",
           {.defines_steps = true}),
      flag("precision", &C::precision,
           "--precision " + joined(names_in(kPrecisions), "|"), kTrainAndVal,
           "The network computes in this number format. bf16 and fp16 use 16 "
           "bits for feature maps and convolutions, and 32 for weights, sums "
           "and losses; fp64 is slow and checks that layouts agree. auto takes "
           "bf16 on cards that compute in it, fp16 on older ones with tensor "
           "cores or whose check of one step passes, else fp32, and a run "
           "keeps it."),
      key("checks_float16", &C::checks_float16,
          "A run in fp16 on cards first checks one forward and backward "
          "against float32, and trains in fp32 if the check fails. precision "
          "auto sets it on cards that may give NaN in fp16, such as GTX 16."),
      flag("patience", &C::patience, "--patience EPOCHS", kTrain,
           "Training stops after this many epochs without a better "
           "best_metric; 0 never stops early.",
           {.unit = "epochs", .range = {0, kMostEpochs}}),
      flag("best_metric", &C::best_metric, "--best-metric", kTrain,
           "The weights of the epoch with the largest value are the best ones, "
           "and --patience watches it: fitness (0.1 mAP50 + 0.9 mAP), mAP50, "
           "mAP, recall or precision. recall where a missed object costs "
           "most.",
           {.choices = {"fitness", "mAP50", "mAP", "recall", "precision"},
            .of_start = true}),
      flag("batch_norm_group_size", &C::batch_norm_group_size, "--bn-group K",
           kTrain,
           "This many consecutive images of the batch share batch-norm "
           "statistics (mean and variance); a remainder is a smaller group. It "
           "changes results, whereas the layout does not. More gives steadier "
           "statistics and keeps as many images in memory at once. 0 makes "
           "max(1, round(batch / 16)) groups, whose sizes differ by at most "
           "one.",
           {.unit = "images", .range = {0, kMost}, .defines_steps = true}),
      flag("sync_batch_norm", &C::sync_batch_norm, "--sync-bn", kTrain,
           "The whole batch is one batch-norm group, as with YOLOv5's "
           "--sync-bn: batch_norm_group_size becomes the batch.",
           {.defines_steps = true}),
      key("skip_non_finite", &C::skip_non_finite,
          "A step whose gradient is infinite or not a number skips its update "
          "and says so; otherwise the run stops before that step."),
  };
}

Options where_it_runs() {
  return {
      flag("device", &C::device, "--device auto|cpu|all|0,1", kTrainAndVal,
           "The run uses auto (all cards of each node, or the CPU where no "
           "node has one), cpu, all (the run is refused where a node has no "
           "card), or NVIDIA cards of each node by number, as in 0 or 0,1. "
           "There is a process for each card."),
      flag("tf32", &C::tf32, "--tf32", kTrainAndVal,
           "A card rounds the factors of float32 products to TF32 (10 bits of "
           "mantissa), as PyTorch does: this is faster, but changes the "
           "losses."),
      flag("deterministic", &C::deterministic, "--deterministic", kTrain,
           "A card's libraries choose only algorithms that give the same bits "
           "again; the CPU's always do."),
      flag("cuda_graphs", &C::cuda_graphs, "--cuda-graphs", kTrain,
           "A micro-batch's forward, loss and backward are captured once and "
           "given to the card as a whole. This helps small models and images, "
           "where the host's calls take longer than the kernels. It is for "
           "training with one image size, and whole models and images on each "
           "card."),
      key("share_devices", &C::share_devices,
          "Several processes may take turns on one card, for tests. NCCL, "
          "NVIDIA's library for exchange, then sees each as a host of its "
          "own."),
      key("full_mesh_ranks", &C::full_mesh_ranks,
          "Ranks of a group above this size connect when they first "
          "exchange something, not all at the start.",
          {.unit = "ranks", .range = {1, kMostProcesses}}),
      flag("require_rate", &C::require_rate, "--require-rate N", kTrain,
           "A run over NCCL is refused where its first sums go at less than "
           "this between its machines, or between the cards of its only one: "
           "the fast network was not found. Without it a tenth of what such "
           "machines have is said with a warning.",
           {.unit = "GB/s", .range = {0}}),
      flag(
          "processes", &C::processes, "--processes N", {"train", "plan", "val"},
          "This many worker processes run on this machine (under mpirun or "
          "srun: in each slot). Without it the layout gives their number, "
          "else there is one for each card, and 1 on a CPU. What joins a "
          "coordinator (--coordinator) starts 1.",
          {.unit = "processes", .range = {0, kMostProcesses}, .of_plan = true}),
      flag("min_processes", &C::min_processes, "--min-processes N", kTrain,
           "A run that loses processes goes on with at least this many; with "
           "fewer it waits up to 10 minutes for others. Fewer keeps a run "
           "going; more keeps it from going on slowly.",
           {.unit = "processes", .range = {1, kMostProcesses}}),
      flag("weight_digest_every", &C::weight_digest_every,
           "--weight-digest-every N", kTrain,
           "Ranks with copies of the same weights compare them each time that "
           "the run has committed this many steps, and before they save them. "
           "A rank that differs computes wrong: it is named and left out, and "
           "the steps since the newest checkpoint are computed again. Fewer "
           "steps lose less work then, and cost more; 0 compares nothing.",
           {.unit = "steps", .range = {0, kMostSteps}}),
      key("card_failure_steps", &C::card_failure_steps,
          "A card that fails twice within this many steps is left out: no "
          "process is started on it any more. Raise it where an unsteady card "
          "costs more than its share of the speed; lower it where failures "
          "have causes beside the card. Ranks that differ twice within that "
          "many steps, without a majority, end the run.",
          {.unit = "steps", .range = {1, kMostSteps}}),
      flag("layout", &C::layout, "--layout data=N,pipeline=N,spatial=N",
           kTrainAndVal,
           "The layout splits a step over processes: data shares out the "
           "images, pipeline the model's layers, spatial the lines of each "
           "image. Data is the fastest where each process has the memory for "
           "whole images and the whole model; pipeline and spatial are for "
           "models and images that one process cannot hold. The axes may come "
           "in any order (data=2,pipeline=1,spatial=1); a missing one is 1, "
           "and their product is the number of processes. It changes no "
           "result.",
           {.of_plan = true}),
      flag("zero_stage", &C::zero_stage, "--zero 0..3", kTrain,
           "The processes of the data axis share out the optimizer's state and "
           "the averaged weights (1), gradients too (2), parameters too (3), "
           "or nothing (0), so that each holds less. Each stage frees memory, "
           "and 3 costs time for exchange. Without a data axis it changes "
           "nothing.",
           {.range = {0, 3}, .of_plan = true}),
      flag("micro_batch_size", &C::micro_batch_size, "--micro-batch K", kTrain,
           "At most this many images of one process go through the network at "
           "once: a multiple of the batch-norm group, or the process's whole "
           "share of the batch. Fewer take less memory and more time. It "
           "changes no result. 0 leaves the choice to the planner.",
           {.unit = "images", .range = {0, kMost}, .of_plan = true}),
      flag("activations", &C::activations, "--activations", kTrain,
           "This is what a layer keeps in forward for backward. keep: "
           "everything; lean: convolution outputs, from which the rest is "
           "derived; recompute: its inputs, so that it runs twice; offload: "
           "nothing but a temporary file of at most host_memory_limit bytes. "
           "Less memory takes more time, with the same results. auto keeps "
           "everything, or under memory_limit what fits and takes least time, "
           "layer by layer.",
           {.choices = {"auto", "keep", "lean", "recompute", "offload"},
            .of_plan = true}),
      flag("augment_on", &C::augment_on, "--augment-on auto|cpu|device", kTrain,
           "Training samples are rendered by the loader's threads (cpu), or by "
           "a kernel on the card (device), to the same bytes. auto is the card "
           "where there is one: it was 1.28 times as fast as 12 threads for "
           "yolov5s on an H200."),
      key("augment_program", &C::augment_program,
          "The run fills in the value of --augment-program. The key starts no "
          "program: that is for the flag alone, also with --resume.",
          {.defines_steps = true}),
      flag("backend", &C::backend, "--backend", kTrainAndVal,
           "How the processes exchange tensors: nccl between cards, gloo over "
           "sockets with the sums of the library of that name, mpi by Open "
           "MPI. auto takes nccl on cards and gloo on the CPU; gloo on cards "
           "goes through the host. auto never takes mpi, which cannot survive "
           "the loss of a process.",
           {.choices = names_in(plan::kBackends)}),
      flag("threads", &C::threads, "--threads N", kTrainAndVal,
           "Each process computes with this many threads; 0 is cores / "
           "processes. Results are bit-identical for equal threads only.",
           {.unit = "threads", .range = {0, kMostThreads}}),
      flag("loader_threads", &C::loader_threads, "--workers N", kTrainAndVal,
           "Each process reads and augments images with this many threads "
           "(YOLOv5's --workers). More where cards wait for images; each takes "
           "host memory. A container's quota of cores lowers the default.",
           {.unit = "threads", .range = {0, kMostThreads}}),
      flag("memory_limit", &C::memory_limit, "--memory-limit SIZE", kTrain,
           "Each process's tensors (on a card, all that the process has there) "
           "may take this many bytes, for example 2GiB: a small card, "
           "emulated. A step that does not fit is tried again with layers "
           "recomputed; if that does not fit either, the run stops before the "
           "step. 0 is no limit on a card; on the CPU it becomes one where the "
           "machine or the container has less free than the run would take.",
           {.unit = "bytes",
            .range = {0},
            .is_byte_size = true,
            .of_plan = true}),
      key("memory_limit_is_machines", &C::memory_limit_is_machines,
          "The run fills in whether memory_limit follows from what the machine "
          "or the container has. Then no layer is offloaded, because that "
          "writes a file, unless activations asks for it.",
          {.of_plan = true}),
      flag("inject", &C::inject, "--inject FAULT", kTrain,
           "Something goes wrong on purpose, for tests: " + faults_text() +
               ". Several are separated by ';'."),
      flag(
          "host_memory_limit", &C::host_memory_limit,
          "--host-memory-limit SIZE", kTrainAndVal,
          "The loader's queues of a process may take this many bytes, for "
          "example 2GiB, and so may its file of offloaded activations. More "
          "keeps more images in memory between their uses: the processes that "
          "one agent starts put their parts together and keep each image once. "
          "0 is "
          "1 GiB for the queues, less where the machine or the container has "
          "less free, and what the disk has for the file.",
          {.unit = "bytes", .range = {0}, .is_byte_size = true}),
      flag("synthetic_input", &C::synthetic_input, "--synthetic-input", kTrain,
           "The run trains on fixed random images in memory, with 8 boxes each "
           "and 80 classes, for benchmarks. An epoch is 1,000 steps, and data "
           "is ignored."),
      key("label_counts", &C::label_counts,
          "A plan's bytes follow from how many boxes the training images have: "
          "'0x12 3x40' is 12 images without a box and 40 with three. It is "
          "read from the label files where a plan needs it. Empty assumes 100 "
          "boxes in every image."),
      key("value_range", &C::value_range,
          "Images have 16 bits, scaled from these values of their files: "
          "low,high, for all bands or each. range of data.yaml fills it in.",
          {.defines_steps = true}),
  };
}

Options what_is_written() {
  return {
      flag("project", &C::project, "--project DIR", kTrainAndVal,
           "Runs get their folders in this one; empty is runs/train or "
           "runs/val.",
           {.of_start = true}),
      flag("name", &C::name, "--name NAME", kTrainAndVal,
           "The run's folder below project has this name, or exp2, exp3, ... "
           "when it is taken.",
           {.of_start = true}),
      flag("exist_ok", &C::exist_ok, "--exist-ok", kTrainAndVal,
           "The run writes into project/name even if it is there; an older run "
           "there is replaced at the first committed step.",
           {.of_start = true}),
      flag("resume", &C::resume, "--resume [DIR]",
           {"train", "plan", "coordinator"},
           "The run in this folder continues from its newest valid checkpoint. "
           "Without a folder, it is the newest run (the word 'latest').",
           {.value_is_optional = true}),
      flag("noval", &C::noval, "--noval", kTrain,
           "Validation runs after the last epoch only."),
      flag("nosave", &C::nosave, "--nosave", kTrain,
           "The run writes no checkpoint before its end, except those of "
           "checkpoint_every_steps."),
      flag("validation_share", &C::validation_share, "--val-share X", kTrain,
           "Validations, weights and checkpoints of epochs take at most about "
           "this share of the time: an epoch that ends sooner after the last "
           "one is neither validated nor saved, except the first and the last "
           "one. Its columns in results.csv are empty, and --patience counts "
           "it. More judges more epochs; 0 all. -1 is 0.2 in runs of 16 "
           "processes or more, where an epoch may be shorter than its "
           "validation, and else 0.",
           {.range = {-1, 0.9}}),
      flag("noplots", &C::noplots, "--noplots", kTrainAndVal,
           "The run draws no pictures: curves, the confusion matrix, labels, "
           "and batches with their boxes."),
      flag("noindex", &C::noindex, "--noindex", kTrainAndVal,
           "The run opens every image and label file when it starts, and keeps "
           "nothing of it. Otherwise what was found out lies in "
           "~/.cache/headroom for the next start, which opens what changed."),
      flag("save_period", &C::save_period, "--save-period EPOCHS", kTrain,
           "The weights of one epoch in N are kept, too; -1 keeps none of "
           "these.",
           {.unit = "epochs", .range = {-1, kMostEpochs}}),
      key("checkpoint_every_steps", &C::checkpoint_every_steps,
          "A checkpoint is written each time that the run has committed this "
          "many steps; 0 writes one after each epoch and every 60 s. Fewer "
          "steps lose less work when a machine is lost, and write more.",
          {.unit = "steps", .range = {0, kMostSteps}}),
      key("keep_checkpoints", &C::keep_checkpoints,
          "This many checkpoints stay on disk, the newest ones; at least 2, so "
          "that a damaged one costs no run.",
          {.unit = "checkpoints", .range = {2, kMost}}),
      flag("memory_trace", &C::memory_trace, "--memory-trace FILE", kTrain,
           "The run writes what every process's tensors are during the first "
           "steps to this file, for ui.perfetto.dev or chrome://tracing: bytes "
           "by their purpose, and the step's phases. A picture goes beside it, "
           "FILE with .png. A resumed run writes one only if the flag is given "
           "again."),
      key("memory_trace_steps", &C::memory_trace_steps,
          "The memory trace takes this many steps, counted from where this run "
          "starts or resumes.",
          {.unit = "steps", .range = {1, 1'000}}),
  };
}

Options how_to_evaluate() {
  return {
      flag("task", &C::task, "--task", kVal,
           "headroom val evaluates this split of the data set.",
           {.choices = {"train", "val", "test"}}),
      flag("confidence_threshold", &C::confidence_threshold, "--conf-thres X",
           kVal,
           "Boxes with a lower score are dropped. More is faster and lowers "
           "mAP, which counts weak boxes too.",
           {.range = kShare}),
      flag("nms_iou_threshold", &C::nms_iou_threshold, "--iou-thres X", kVal,
           "Of two boxes of a class with a larger IoU (their overlap: "
           "intersection over union) the weaker one is dropped. More keeps "
           "objects apart that stand close together, and leaves more doubles. "
           "-1 is 0.6, and 0.7 for a head without anchors, such as YOLOv8's.",
           {.range = {-1, 1}}),
      key("clip_boxes", &C::clip_boxes,
          "Boxes are cut at the image's edge before they are compared with the "
          "labels, as in headroom detect. The ultralytics package compares "
          "them as predicted: false gives its mAP, which is lower where "
          "objects reach over the edge."),
      flag("max_detections", &C::max_detections, "--max-det N", kVal,
           "At most this many boxes of an image are kept, the strongest ones.",
           {.unit = "boxes per image", .range = {1, 30'000}}),
      flag("save_txt", &C::save_txt, "--save-txt", kVal,
           "The boxes found in each image are written to labels/NAME.txt in "
           "the run's folder: class cx cy w h, as fractions of the image."),
      flag("save_conf", &C::save_conf, "--save-conf", kVal,
           "With save_txt, each line has the score as a sixth value."),
      flag("save_json", &C::save_json, "--save-json", kVal,
           "The boxes found are written as a COCO result file, "
           "predictions.json. Its ids are those of the annotations where the "
           "data set is COCO's JSON; else they are file names, and classes "
           "from 0 or, for COCO's class names, COCO's ids."),
      flag("tile_height", &C::tile_height, "--tile HEIGHT [WIDTH]", kVal,
           "headroom val looks at tiles of this height instead of the whole "
           "image at once, and merges their boxes, as headroom detect does. "
           "--tile S sets both sides, --tile HEIGHT WIDTH each. 0 takes images "
           "as a whole.",
           {.unit = "pixels",
            .range = {0, kMostPixels},
            .second_key = "tile_width"}),
      key("tile_width", &C::tile_width,
          "The tiles have this width; --tile sets it.",
          {.unit = "pixels", .range = {0, kMostPixels}}),
      flag("tile_overlap", &C::tile_overlap, "--tile-overlap X", kVal,
           "Tiles overlap by at least this part of their side, which should be "
           "as large as the largest object.",
           {.range = {0, 0.9}}),
  };
}

}  // namespace

const std::vector<Option>& run_options() {
  static const std::string what = "Model, data and batch";
  static const Options all = grouped({{what, model_and_data()},
                                      {"How to train", hyperparameters()},
                                      {what, anchors_and_batch()},
                                      {"How to train", how_to_train()},
                                      {"Where it runs", where_it_runs()},
                                      {"What is written", what_is_written()},
                                      {"How to evaluate", how_to_evaluate()}});
  return all;
}

}  // namespace headroom::configs
