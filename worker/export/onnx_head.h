// onnx_head: converts the maps of the last convolutions to boxes, in ONNX
// operators.
//
//   kRaw         level0, level1, ...: as LayerGraph::forward gives the heads;
//                with anchors [N, anchors, H, W, 5 + classes]
//   kDecoded     output0: [N, rows, 5 + classes], as LayerGraph::decode does;
//                without anchors [N, 4 + classes, rows], as other programs do
//   kDetections  detections: [found, 7], rows image, x1, y1, x2, y2, score,
//                class (a box's best), after ONNX's NonMaxSuppression: by
//                image, then class, then descending score
//
// Decoding is always in float32, because float16 numbers above 1024 are a whole
// pixel apart.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/export/onnx_graph.h"

namespace headroom::exporter {

enum class OnnxOutput { kRaw, kDecoded, kDetections };

struct OnnxHeadOptions {
  OnnxOutput output = OnnxOutput::kDecoded;
  bool is_half = false;
  int64_t num_classes = 0;
  // The size of the input; 0 means any size, read when the network runs.
  int64_t batch = 1, height = 640, width = 640;
  // The following members are used with kDetections only.
  float confidence_threshold = 0, iou_threshold = 0;
  int64_t most_per_class = 0;  // most boxes per class of an image
};

struct OnnxLevel {
  // [N, anchors * (5 + classes), H, W]; without anchors [N, 4 * bins, H, W]
  std::string map;
  int64_t stride = 0;
  std::vector<std::pair<double, double>> anchors;  // width, height in pixels
  std::string classes = {};  // without anchors: [N, classes, H, W]
};

// Adds the nodes and outputs of the head.
void add_head(OnnxGraph& graph, const std::vector<OnnxLevel>& levels,
              const OnnxHeadOptions& options);

}  // namespace headroom::exporter
