// LayerCost: the costs of each layer of a model table, from the table alone:
// parameters, multiply-adds and elements kept for backward.
//
// The coordinator cuts a model into pipeline stages without tensors, so the
// costs are computed from the layer programs that worker/model runs
// (configs/layers/layer_modules.h). Only convolutions count as work: the other
// operators need a few operations per element.
//
// All costs except parameters grow with the image's area, so they are per pixel
// of one image: a map of stride s has 1 / s^2 cells per pixel.
//
// Errors: Error with the table's file:line:column.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/model_table.h"

namespace headroom::layers {

struct LayerCost {
  std::string module;       // "C3"
  std::vector<int> inputs;  // numbers of the input layers; -1 is the image
  int64_t channels = 0;     // output channels; for Detect summed over levels
  int64_t stride = 1;       // pixels per output cell; for Detect the largest
  std::shared_ptr<const LayerProgram> program;  // null for the head, Detect
  int64_t num_classes = 0;                      // set only for Detect
  int64_t anchors = 0;  // of a level of Detect; 0 if the head has none
  int64_t parameters = 0;
  int64_t parameter_tensors = 0;
  int64_t norm_channels = 0;  // channels of all batch norms of the layer
  double multiply_adds_per_pixel = 0;
  // Elements kept until backward under the policy keep. A convolution block
  // keeps its convolution's output and its own output, which is the next
  // block's input. A map read only by an addition or a concatenation is not
  // kept; the result is. Per cell, with c output channels, h = c / 2, n
  // repeats:
  //   Conv 2c · C3 4c + 2nc · Upsample, Concat c · Detect its outputs ·
  //   SPPF, h of its input: 8h + 2c
  double kept_elements_per_pixel = 0;

  bool is_head() const { return program == nullptr; }
  // Whether the output is a raw head: a branch of a head without anchors.
  bool is_branch() const {
    return !is_head() && !program->blocks.empty() &&
           program->blocks.back().kind == LayerProgram::BlockKind::kOutputConv;
  }
  // Equals Layer::inside() (worker/model/layer.h).
  LayerInside inside() const {
    return is_head() ? LayerInside::kNothing : program->inside();
  }
  bool operator==(const LayerCost&) const = default;
};

// The layers of the table; the branches of a head without anchors are layers,
// too (detect_branches.h).
std::vector<LayerCost> layer_costs(const ModelTable& table);

// The largest stride of the layers' outputs; images are rounded up to a
// multiple of it.
int64_t largest_stride(const std::vector<LayerCost>& layers);

// Channels of the loaded images: the model's `ch`, but 3 if `ch` is 1.
int64_t image_bands(const std::vector<LayerCost>& layers);

// The number of classes of the Detect layer, the last one.
int64_t num_classes(const std::vector<LayerCost>& layers);

// Height or width of the network's input: `size` rounded up to a multiple of
// the model's largest stride, and at least two strides.
int64_t rounded_image_size(int64_t size, int64_t largest_stride);

// The time of a layer's forward and backward under each activation policy, for
// comparing policies only. The unit is a multiply-add of a forward convolution
// per pixel of one image, for a layer of M multiply-adds that keeps E elements
// per pixel:
//
//   keep        3.75 M + 240 E        one forward and one backward pass
//   lean        keep     +   8 E      plus: maps are computed again
//   recompute   keep + M +  48 E      plus: convolutions and maps are computed
//                                     again
//   offload     keep     +  58 E      plus: maps are written to a file and read
//
// Calibrated on yolov5s, 480 px, one thread of an AMD EPYC (Zen 5) by
// `benchmark_activations --img 480 --rounds 9`. For lean, recompute and
// offload, relative to keep, the formulas give 1.010, 1.070 and 1.247; the
// benchmark measured 1.004, 1.072 and 1.244.
struct LayerTime {
  double keep = 0;
  double lean = 0;
  double recompute = 0;
  double offload = 0;
};

LayerTime layer_time(const LayerCost& layer);

}  // namespace headroom::layers
