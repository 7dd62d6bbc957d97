// LayerTime: how long a layer takes, forward and backward together, under each
// activation policy: a model for choosing between policies, no prediction.
//
// In multiply-adds of a forward convolution per pixel of one image. A layer of
// M multiply-adds that keeps E elements, both per pixel
// (configs/layers/layer_cost.h):
//
//   keep        3.75 M + 240 E   forward; two convolutions and the rest behind
//   lean        and    8 E       maps are derived once more
//   recompute   and M + 48 E     convolutions too
//   offload     and   58 E       to a file and back
//
// Calibrated on yolov5s, 80 classes, one image of 480 px, one thread of an AMD
// EPYC (Zen 5), by
//
//   benchmark_activations --img 480 --rounds 9 --rows "recompute 0-2" …
//
//   over keep's step    lean   offload  recompute  of layers  0-2   3-4   5-9
//   10-24
//   measured            1.004    1.072      1.244         1.067 1.028 1.081  1.085
//   this
//   model          1.010    1.070      1.247         1.052 1.037 1.070  1.088
//
// Threads: a pure function.
#pragma once

#include "configs/layers/layer_cost.h"

namespace headroom::layers {

struct LayerTime {
  double keep = 0;
  double lean = 0;
  double recompute = 0;
  double offload = 0;
};

LayerTime layer_time(const LayerCost& layer);

}  // namespace headroom::layers
