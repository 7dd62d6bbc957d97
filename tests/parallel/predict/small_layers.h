// The smallest model whose memory can be counted by hand: a convolution of 16
// channels at stride 2, and a head of 18 on it (3 anchors, 1 class).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "parallel/predict/layers.h"

namespace headroom::predict {

// A layer that consists of one block.
inline std::shared_ptr<const layers::LayerProgram> conv_program(
    const layers::MapShape& input, const layers::LayerProgram::Block& block) {
  layers::LayerProgram program;
  program.inputs = {input};
  program.run_block(program.declare_conv(block), 0);
  return std::make_shared<const layers::LayerProgram>(std::move(program));
}

inline std::vector<layers::LayerCost> small_layers() {
  layers::LayerCost conv;
  conv.program = conv_program({3, 1}, {"", 3, 16, 3, 2, 1});
  conv.inputs = {-1};
  conv.channels = 16;
  conv.stride = 2;
  conv.parameters = 9 * 3 * 16 + 2 * 16;
  conv.parameter_tensors = 3;
  conv.norm_channels = 16;
  layers::LayerCost detect;
  detect.inputs = {0};
  detect.channels = 18;
  detect.anchors = 3;
  detect.stride = 2;
  detect.parameters = 16 * 18 + 18;
  detect.parameter_tensors = 2;
  return {conv, detect};
}

}  // namespace headroom::predict
