// LayerCost: what each layer of a model table costs, known from the table
// alone: parameters, multiply-adds and what is kept for backward.
//
// The coordinator cuts a model into pipeline stages without a tensor, so it
// counts the same programs that worker/model runs
// (configs/layers/layer_modules.h). Only convolutions count as work: the other
// operators are a few operations per element.
//
// Everything but the parameters grows with the image's area, so costs are per
// pixel of one image: a map of stride s has 1 / s^2 cells per pixel.
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
  std::vector<int> inputs;  // layers it reads; -1: the image
  int64_t channels = 0;     // channels of its output; Detect: of all levels
  int64_t stride = 1;       // pixels per cell of its output; Detect: largest
  std::shared_ptr<const LayerProgram> program;  // null: Detect
  int64_t anchors_per_level = 0;                // Detect alone has them
  int64_t parameters = 0;
  int64_t parameter_tensors = 0;
  int64_t norm_channels = 0;  // channels of its batch norms
  double multiply_adds_per_pixel = 0;
  // Elements that stay until backward when everything is kept. A convolution
  // block keeps its convolution's output and its own output, the next one's
  // input; a map that only an addition or a concatenation reads is not kept,
  // their result is. With c output channels, h = c / 2, n repeats, per cell:
  //   Conv 2c · C3 4c + 2nc · Upsample, Concat c · Detect its outputs ·
  //   SPPF, h of its input: 8h + 2c
  double kept_elements_per_pixel = 0;
};

std::vector<LayerCost> layer_costs(const ModelTable& table);

// The largest stride of the layers' outputs; images are rounded up to a
// multiple of it.
int64_t largest_stride(const std::vector<LayerCost>& layers);

// Bytes of a pixel as it is loaded: the model's `ch`, and 3 for a `ch` of 1.
int64_t image_bands(const std::vector<LayerCost>& layers);

// The classes that the Detect layer, the last one, has outputs for.
int64_t num_classes(const std::vector<LayerCost>& layers);

// Height or width of the network's input: `size` rounded up to whole blocks of
// the model's largest stride, at least two.
int64_t rounded_image_size(int64_t size, int64_t largest_stride);

// How long a layer takes, forward and backward together, under each activation
// policy: a model for choosing between policies, no prediction. The unit is a
// multiply-add of a forward convolution per pixel of one image, for a layer of
// M multiply-adds that keeps E elements per pixel:
//
//   keep        3.75 M + 240 E   forward; two convolutions and the rest behind
//   lean        and    8 E       maps are derived once more
//   recompute   and M + 48 E     convolutions too
//   offload     and   58 E       to a file and back
//
// Calibrated on yolov5s, 480 px, one thread of an AMD EPYC (Zen 5) by
// `benchmark_activations --img 480 --rounds 9`; over keep's time it
// gives 1.010, 1.070 and 1.247 where 1.004, 1.072 and 1.244 were measured.
struct LayerTime {
  double keep = 0;
  double lean = 0;
  double recompute = 0;
  double offload = 0;
};

LayerTime layer_time(const LayerCost& layer);

}  // namespace headroom::layers
