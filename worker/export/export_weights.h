// export: headroom-worker export, a file of weights as another format.
//
//   onnx         NAME.onnx: the network itself (onnx_network.h)
//   torchscript  NAME.torchscript: likewise (torchscript_network.h)
//   safetensors  NAME.safetensors: the tensors under YOLOv5's names, in float32
//
// With int8 the network is NAME-int8.onnx, in integers of 8 bits
// (quantised_network.h), whose ranges come from calibration images.
//
// Errors: Error (exit 2).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/model/layer_graph.h"

namespace headroom::exporter {

// Hands images [N, C, H, W], 0..1, sides in multiples of `stride`, to its last
// argument; the same at every call.
using CalibrationImages = std::function<void(
    int64_t stride, const std::function<void(const at::Tensor&)>&)>;
// Turns such images into heads, as LayerGraph::forward does.
using HeadsOfImages = std::function<std::vector<at::Tensor>(const at::Tensor&)>;

struct ExportRequest {
  std::string weights;
  std::string cfg;  // "": what the weights say
  std::vector<std::string> include;
  std::string output;  // the stem of the files; "": that of the weights
  int64_t height = 640, width = 640, batch = 1;
  bool dynamic = false;  // any batch, height and width
  bool raw = false;
  bool nms = false;
  bool half = false;
  bool int8 = false;
  CalibrationImages calibration_images = nullptr;  // int8 needs them
  // Is told of the network in 8 bits, simulated in float32; may be none.
  std::function<void(model::LayerGraph& model, const HeadsOfImages&)>
      after_int8 = nullptr;
  // The settings of `nms`.
  double confidence_threshold = 0, iou_threshold = 0;
  int64_t most_per_class = 0;
};

// --output y.safetensors names a format by its suffix, which stands for
// --include where that is not given and must be one of its formats where it is;
// without both the format is onnx. Leaves the stem in `output`.
void settle_formats(ExportRequest& request);

// Refuses what cannot be asked for together, before anything is read.
void check_export(const ExportRequest& request);

// "images 1x3x640x640 -> output0 1x25200x85", one line per file written.
std::vector<std::string> export_weights(const ExportRequest& request);

}  // namespace headroom::exporter
