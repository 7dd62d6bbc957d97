// PassFixture: a pass over two images of 32 x 32 pixels on one rank, float32,
// with maps that somebody made and maps that nobody did.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/predict/pass.h"

namespace headroom::predict {

class PassFixture : public testing::Test {
 protected:
  static Extents two_images() {
    Extents extents;
    extents.samples = 2;
    extents.image_height = extents.image_width = 32;
    return extents;
  }

  Pass pass() { return {extents_, tape_, graph_}; }

  // Of channels x cells x 4 bytes; nobody made it.
  Map map(int64_t channels, int64_t stride) {
    return {tape_.allocate(extents_.map_bytes(channels, stride)), channels,
            stride};
  }
  // Somebody made it, who wants its gradient.
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
  // Gives the map a gradient and goes backward; the most that is live in it.
  int64_t peak_of_backward(const Map& map, int64_t bytes) {
    Graph::Node root;
    root.inputs = {map.node};
    root.is_root = true;
    root.backward = [this, bytes](Gradient) {
      Graph::Outcome outcome;
      outcome.inputs = {{tape_.allocate(bytes), false}};
      return outcome;
    };
    graph_.add(std::move(root));
    tape_.reset_peak();
    graph_.run_backward([](int64_t) {}, nullptr);
    return tape_.peak_bytes();
  }

  Extents extents_ = two_images();
  Tape tape_;
  Graph graph_{tape_};
  std::vector<int64_t> arrived_;  // gradients of made maps, bytes
};

}  // namespace headroom::predict
