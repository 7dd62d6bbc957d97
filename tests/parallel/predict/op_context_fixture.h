// PassFixture: a pass over two float32 images of 32 x 32 pixels on one rank.
// Its maps are either results of an operator or inputs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/predict/op_context.h"

namespace headroom::predict {

class PassFixture : public testing::Test {
 protected:
  static MicroBatchShape two_images() {
    MicroBatchShape shape;
    shape.samples = 2;
    shape.image_height = shape.image_width = 32;
    return shape;
  }

  OpContext context() { return {shape_, buffers_, graph_}; }

  // A map with channels x cells x 4 bytes that is an input.
  Map map(int64_t channels, int64_t stride) {
    return {buffers_.allocate(shape_.map_bytes(channels, stride)), channels,
            stride};
  }
  // A map that is the result of an operator and needs its gradient.
  Map made_map(int64_t channels, int64_t stride) {
    Map made = map(channels, stride);
    Graph::Node node;
    node.output_bytes = made.memory->bytes;
    node.backward = [this](Gradient gradient) {
      arrived_.push_back(gradient.memory->bytes);
      return Graph::Outcome();
    };
    made.node = graph_.add(std::move(node));
    return made;
  }
  // Gives the map a gradient and runs backward; returns the peak bytes.
  int64_t peak_of_backward(const Map& map, int64_t bytes) {
    Graph::Node root;
    root.inputs = {map.node};
    root.is_root = true;
    root.backward = [this, bytes](Gradient) {
      Graph::Outcome outcome;
      outcome.inputs = {{buffers_.allocate(bytes), false}};
      return outcome;
    };
    graph_.add(std::move(root));
    buffers_.reset_peak();
    graph_.run_backward([](int64_t) {}, nullptr);
    return buffers_.peak_bytes();
  }

  MicroBatchShape shape_ = two_images();
  LiveBuffers buffers_;
  Graph graph_{buffers_};
  std::vector<int64_t> arrived_;  // gradients' bytes of made_map() maps
};

}  // namespace headroom::predict
