#include "configs/knobs.h"

namespace headroom::configs {

std::vector<Knob> hyperparameter_knobs() {
  using H = Hyperparameters;
  return {
      knob("hyp.lr0", &H::lr0, "The learning rate begins at this value.",
           {.low = 0}),
      knob("hyp.lrf", &H::lrf,
           "The learning rate ends at this fraction of lr0.", {.low = 0}),
      knob("hyp.momentum", &H::momentum,
           "SGD has this momentum (Nesterov), and Adam this beta1.",
           {.low = 0, .high = 1}),
      knob("hyp.weight_decay", &H::weight_decay,
           "Weights of convolutions decay by this factor; biases and batch "
           "norm do not.",
           {.low = 0}),
      knob("hyp.warmup_epochs", &H::warmup_epochs,
           "The warm-up, in which the learning rate and the momentum move to "
           "their values, lasts this long, but at least 100 steps; 0 means "
           "no warm-up at all.",
           {.unit = "epochs", .low = 0}),
      knob("hyp.warmup_momentum", &H::warmup_momentum,
           "The momentum has this value at the first step of the warm-up.",
           {.low = 0, .high = 1}),
      knob("hyp.warmup_bias_lr", &H::warmup_bias_lr,
           "The biases' learning rate has this value at the first step of "
           "the warm-up.",
           {.low = 0}),
      knob("hyp.box", &H::box,
           "The box term of the loss has this gain (factor).", {.low = 0}),
      knob("hyp.cls", &H::cls, "The class term of the loss has this gain.",
           {.low = 0}),
      knob("hyp.cls_pw", &H::cls_pw,
           "Positives weigh this much in the class term.", {.low = 0}),
      knob("hyp.obj", &H::obj,
           "The objectness term of the loss (is there an object?) has this "
           "gain.",
           {.low = 0}),
      knob("hyp.obj_pw", &H::obj_pw,
           "Positives weigh this much in the objectness term.", {.low = 0}),
      knob("hyp.iou_t", &H::iou_t, "This is unused, as in YOLOv5.",
           {.low = 0, .high = 1}),
      knob("hyp.anchor_t", &H::anchor_t,
           "An anchor matches a box when every side differs by less than "
           "this factor.",
           {.low = 1}),
      knob("hyp.anchors", &H::anchors,
           "Any other number than 0 replaces the model's anchors by ones "
           "found from the training boxes, however well they fit; rounded, "
           "it must be the number that the model has. 0 judges the model's "
           "first.",
           {.unit = "anchors per level", .low = 0, .high = 100}),
      knob("hyp.fl_gamma", &H::fl_gamma,
           "Focal loss, which weighs hard examples more, has this exponent; "
           "0 is off.",
           {.low = 0, .high = 100}),
      knob("hyp.hsv_h", &H::hsv_h,
           "Hue changes by a random factor of 1 plus or minus this.",
           {.low = 0, .high = 1}),
      knob("hyp.hsv_s", &H::hsv_s,
           "Saturation changes by a random factor of 1 plus or minus this.",
           {.low = 0, .high = 1}),
      knob("hyp.hsv_v", &H::hsv_v,
           "Brightness changes by a random factor of 1 plus or minus this.",
           {.low = 0, .high = 1}),
      knob("hyp.degrees", &H::degrees,
           "Images rotate at random by up to this, plus or minus.",
           {.unit = "degrees", .low = 0, .high = 180}),
      knob("hyp.translate", &H::translate,
           "Images shift at random by up to this, plus or minus.",
           {.unit = "fraction of the image", .low = 0, .high = 1}),
      knob("hyp.scale", &H::scale,
           "Images are scaled at random by 1 plus or minus this.",
           {.unit = "gain", .low = 0, .high = 1}),
      knob("hyp.shear", &H::shear,
           "Images are sheared at random by up to this, plus or minus.",
           {.unit = "degrees", .low = 0, .high = 89}),
      knob("hyp.perspective", &H::perspective,
           "The perspective changes at random by up to this, plus or minus.",
           {.low = 0, .high = 0.001}),
      knob("hyp.flipud", &H::flipud, "Images are flipped upside down.",
           {.unit = "probability", .low = 0, .high = 1}),
      knob("hyp.fliplr", &H::fliplr, "Images are flipped left to right.",
           {.unit = "probability", .low = 0, .high = 1}),
      knob("hyp.mosaic", &H::mosaic,
           "Training joins four images into one (a mosaic), never with "
           "--rect.",
           {.unit = "probability", .low = 0, .high = 1}),
      knob("hyp.mixup", &H::mixup, "A mosaic is blended with a second one.",
           {.unit = "probability", .low = 0, .high = 1}),
      knob("hyp.copy_paste", &H::copy_paste,
           "This part of a mosaic's objects is pasted into it once more, "
           "mirrored, where they hide little. It needs labels that are "
           "polygons, because boxes have no outline.",
           {.unit = "share of objects", .low = 0, .high = 1}),
      knob("hyp.mosaic9", &H::mosaic9,
           "A mosaic is made of nine images instead of four.",
           {.unit = "probability", .low = 0, .high = 1}),
      knob("hyp.blur", &H::blur,
           "A mean of 3 to 7 pixels square blurs the image, after the "
           "geometric changes.",
           {.unit = "probability", .low = 0, .high = 1}),
      knob("hyp.median_blur", &H::median_blur,
           "A median of 3 to 7 pixels square smooths the image.",
           {.unit = "probability", .low = 0, .high = 1}),
      knob("hyp.gray", &H::gray, "The image loses all colour.",
           {.unit = "probability", .low = 0, .high = 1}),
      knob("hyp.clahe", &H::clahe,
           "The brightness of 8 x 8 parts of the image is spread (CLAHE).",
           {.unit = "probability", .low = 0, .high = 1}),
      knob("hyp.distill", &H::distill,
           "The teacher's term of the loss has this gain; it counts with "
           "--teacher only.",
           {.low = 0}),
  };
}

}  // namespace headroom::configs
