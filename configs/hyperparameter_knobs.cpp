#include "configs/knobs.h"

namespace headroom {

std::vector<Knob> hyperparameter_knobs() {
  using H = Hyperparameters;
  const double infinity = std::numeric_limits<double>::infinity();
  return {
      {"hyp.lr0", &H::lr0, "", "Initial learning rate.", 0, infinity},
      {"hyp.lrf", &H::lrf, "", "Final learning rate as a fraction of lr0.", 0,
       infinity},
      {"hyp.momentum", &H::momentum, "", "Momentum of SGD (Nesterov).", 0, 1},
      {"hyp.weight_decay", &H::weight_decay, "",
       "Decay of convolution weights; biases and batch norm have none.", 0,
       infinity},
      {"hyp.warmup_epochs", &H::warmup_epochs, "epochs",
       "Length of the warm-up, at least 100 steps; 0 means no warm-up at all.",
       0, infinity},
      {"hyp.warmup_momentum", &H::warmup_momentum, "",
       "Momentum at the first step of the warm-up.", 0, 1},
      {"hyp.warmup_bias_lr", &H::warmup_bias_lr, "",
       "Learning rate of the biases at the first step of the warm-up.", 0,
       infinity},
      {"hyp.box", &H::box, "", "Gain of the box term of the loss.", 0,
       infinity},
      {"hyp.cls", &H::cls, "", "Gain of the class term of the loss.", 0,
       infinity},
      {"hyp.cls_pw", &H::cls_pw, "", "Weight of positives in the class term.",
       0, infinity},
      {"hyp.obj", &H::obj, "", "Gain of the objectness term of the loss.", 0,
       infinity},
      {"hyp.obj_pw", &H::obj_pw, "",
       "Weight of positives in the objectness term.", 0, infinity},
      {"hyp.iou_t", &H::iou_t, "", "Unused, as in YOLOv5.", 0, 1},
      {"hyp.anchor_t", &H::anchor_t, "",
       "An anchor answers for a box when no side differs by this factor.", 1,
       infinity},
      {"hyp.anchors", &H::anchors, "anchors per level",
       "Replace the model's anchors by ones found from the training boxes, "
       "however well they fit; rounded, and the number that the model has. 0 "
       "judges the model's first.",
       0, 100},
      {"hyp.fl_gamma", &H::fl_gamma, "", "Exponent of focal loss; 0 is off.", 0,
       100},
      {"hyp.hsv_h", &H::hsv_h, "fraction", "Random change of hue.", 0, 1},
      {"hyp.hsv_s", &H::hsv_s, "fraction", "Random change of saturation.", 0,
       1},
      {"hyp.hsv_v", &H::hsv_v, "fraction", "Random change of brightness.", 0,
       1},
      {"hyp.degrees", &H::degrees, "degrees", "Random rotation, plus or minus.",
       0, 180},
      {"hyp.translate", &H::translate, "fraction of the image",
       "Random shift, plus or minus.", 0, 1},
      {"hyp.scale", &H::scale, "gain", "Random zoom, 1 plus or minus this.", 0,
       1},
      {"hyp.shear", &H::shear, "degrees", "Random shear, plus or minus.", 0,
       89},
      {"hyp.perspective", &H::perspective, "",
       "Random perspective, plus or minus.", 0, 0.001},
      {"hyp.flipud", &H::flipud, "probability", "Flip upside down.", 0, 1},
      {"hyp.fliplr", &H::fliplr, "probability", "Flip left to right.", 0, 1},
      {"hyp.mosaic", &H::mosaic, "probability",
       "Train on four images in one. Never with --rect.", 0, 1},
      {"hyp.mixup", &H::mixup, "probability",
       "Blend two mosaics. Not in this version: keep it 0.", 0, 1},
      {"hyp.copy_paste", &H::copy_paste, "probability",
       "Paste mirrored objects. Not in this version: keep it 0.", 0, 1},
  };
}

}  // namespace headroom
