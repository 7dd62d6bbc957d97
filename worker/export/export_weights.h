// export: headroom-worker export, which writes weights in another format.
//
//   onnx         NAME.onnx: the network with its weights (onnx_network.h)
//   torchscript  NAME.torchscript: the same content (torchscript_network.h)
//   safetensors  NAME.safetensors: the tensors under YOLOv5's names, in float32
//   pt           NAME.pt: the same as PyTorch's state dict (state_dict.h)
//
// With int8 the network is NAME-int8.onnx in 8-bit integers
// (quantised_network.h). Their ranges come from calibration images.
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

// Calls its second argument with images [N, C, H, W], 0..1, whose sides are
// multiples of `stride`. It is called twice and must give the same images.
using CalibrationImages = std::function<void(
    int64_t stride, const std::function<void(const at::Tensor&)>&)>;
// Computes the heads of calibration images, as LayerGraph::forward does.
using HeadsOfImages = std::function<std::vector<at::Tensor>(const at::Tensor&)>;

struct ExportRequest {
  std::string weights;
  std::string cfg;  // "" means the model that the weights name
  std::vector<std::string> include;
  std::string output;  // the files' stem; "" means the weights' stem
  int64_t height = 640, width = 640, batch = 1;
  bool dynamic = false;  // the network takes any batch and image size
  bool raw = false;
  bool nms = false;
  bool half = false;
  bool int8 = false;
  CalibrationImages calibration_images = nullptr;  // required by int8
  // Called with the network in 8 bits, simulated in float32; may be empty.
  std::function<void(model::LayerGraph& model, const HeadsOfImages&)>
      after_int8 = nullptr;
  // The following members are used with nms only.
  double confidence_threshold = 0, iou_threshold = 0;
  int64_t most_per_class = 0;
};

// If --include is not given, the suffix of `output` (y.safetensors) determines
// the format; without a suffix it is onnx. If both are given, --include must
// contain the suffix's format. Removes the suffix from `output`.
void settle_formats(ExportRequest& request);

// Refuses options that contradict each other, before any file is read.
void check_export(const ExportRequest& request);

// Writes the files. Returns a line per file: "images 1x3x640x640 -> output0 …".
std::vector<std::string> export_weights(const ExportRequest& request);

}  // namespace headroom::exporter
