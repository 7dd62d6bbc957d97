// Rectangular batches: images of similar shape together, each batch just large
// enough for its own.
//
// YOLOv5's rule: sort by height / width; the batch's shape follows from its
// flattest and tallest image, each fitted into the network's size, rounded up
// to the stride after adding `pad` strides. Here also for a network that is
// not square.
//
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/codecs/image.h"

namespace headroom::loader {

struct RectOptions {
  int64_t batch_size = 16;
  int64_t height = 640, width = 640;
  int64_t stride = 32;
  double pad = 0;  // strides: 0.5 in validation, 0 in training
};

struct RectBatches {
  struct Shape {
    int64_t height = 0, width = 0;
  };
  std::vector<int64_t> order;  // batch b has order[b * batch_size ..]
  std::vector<Shape> shapes;   // by batch
};

RectBatches make_rect_batches(const std::vector<codecs::ImageSize>& sizes,
                              const RectOptions& options);

}  // namespace headroom::loader
