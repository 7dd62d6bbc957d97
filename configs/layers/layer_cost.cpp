#include "configs/layers/layer_cost.h"

#include <algorithm>
#include <utility>

#include "configs/layers/detect_branches.h"
#include "configs/layers/layer_modules.h"
#include "configs/layers/table_layer.h"
#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/units.h"

namespace headroom::layers {
namespace {

double kept_elements(const LayerProgram& program) {
  std::vector<bool> is_kept(static_cast<size_t>(program.num_values()), false);
  is_kept.back() = true;
  double kept = 0;
  for (const LayerProgram::Step& step : program.steps) {
    if (step.keeps_inputs()) {
      for (const int input : step.inputs)
        is_kept[static_cast<size_t>(input)] = true;
    }
    kept += step.facts.kept_elements_per_pixel;
  }
  for (size_t value = program.inputs.size(); value < is_kept.size(); ++value) {
    if (is_kept[value])
      kept += elements_per_pixel(program.shape_of(static_cast<int>(value)));
  }
  return kept;
}

void count_program(LayerProgram program, LayerCost& cost) {
  cost.channels = program.output().channels;
  cost.stride = program.output().stride;
  for (const LayerProgram::Block& block : program.blocks) {
    for (const int64_t elements : block.parameters) cost.parameters += elements;
    cost.parameter_tensors += static_cast<int64_t>(block.parameters.size());
    cost.norm_channels += block.norm_channels;
  }
  for (const LayerProgram::Step& step : program.steps)
    cost.multiply_adds_per_pixel += step.facts.multiply_adds_per_pixel;
  cost.kept_elements_per_pixel = kept_elements(program);
  cost.program = std::make_shared<const LayerProgram>(std::move(program));
}

void count_detect(const std::vector<MapShape>& inputs, int64_t outputs,
                  LayerCost& cost) {
  for (const MapShape& level : inputs) {
    cost.stride = std::max(cost.stride, level.stride);
    cost.parameters += (level.channels + 1) * outputs;
    cost.parameter_tensors += 2;
    cost.multiply_adds_per_pixel +=
        elements_per_pixel({level.channels * outputs, level.stride});
    cost.kept_elements_per_pixel += elements_per_pixel({outputs, level.stride});
    cost.channels += outputs;
  }
}

void count_collected(const std::vector<MapShape>& branches, LayerCost& cost) {
  for (const MapShape& branch : branches) {
    cost.stride = std::max(cost.stride, branch.stride);
    cost.channels += branch.channels;
  }
}

}  // namespace

std::vector<LayerCost> layer_costs(const ModelTable& given) {
  const ModelTable table = with_branches(given, given.num_classes);
  std::vector<LayerCost> costs;
  for (size_t i = 0; i < table.layers.size(); ++i) {
    LayerCost cost;
    cost.module = table.layers[i].module;
    cost.inputs = edges_of(table, i);
    std::vector<MapShape> inputs;
    for (const int input : cost.inputs) {
      if (input == kImageEdge) {
        inputs.push_back({table.input_channels, 1});
      } else {
        const LayerCost& from = costs[static_cast<size_t>(input)];
        inputs.push_back({from.channels, from.stride});
      }
    }
    if (cost.module == kDetectModule) {
      check_detect(table, i, inputs, table.num_classes);
      cost.num_classes = table.num_classes;
      if (has_anchors(table)) {
        cost.anchors = std::ssize(table.anchors.front());
        count_detect(inputs, cost.anchors * (kFirstClass + table.num_classes),
                     cost);
      } else {
        count_collected(inputs, cost);
      }
    } else {
      count_program(layer_program(table, i, inputs, table.num_classes), cost);
    }
    costs.push_back(std::move(cost));
  }
  return costs;
}

int64_t image_bands(const std::vector<LayerCost>& layers) {
  return picture_channels(layers.front().program->inputs.front().channels);
}

int64_t largest_stride(const std::vector<LayerCost>& layers) {
  int64_t largest = 1;
  for (const LayerCost& layer : layers)
    largest = std::max(largest, layer.stride);
  return largest;
}

int64_t num_classes(const std::vector<LayerCost>& layers) {
  const LayerCost& detect = layers.back();
  HEADROOM_CHECK(detect.num_classes > 0, "the last layer is no Detect");
  return detect.num_classes;
}

int64_t rounded_image_size(int64_t size, int64_t largest_stride) {
  return std::max(round_up(size, largest_stride), 2 * largest_stride);
}

LayerTime layer_time(const LayerCost& layer) {
  const double work = layer.multiply_adds_per_pixel;
  const double maps = layer.kept_elements_per_pixel;
  LayerTime time;
  time.keep = 3.75 * work + 240 * maps;
  time.lean = time.keep + 8 * maps;
  // Without a convolution, recompute does the same as lean.
  time.recompute = work > 0 ? time.keep + work + 48 * maps : time.lean;
  time.offload = time.keep + 58 * maps;
  return time;
}

}  // namespace headroom::layers
