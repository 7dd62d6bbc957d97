// export: headroom-worker export, a file of weights as another format.
//
//   onnx         NAME.onnx: the network itself (onnx_network.h)
//   torchscript  NAME.torchscript: likewise (torchscript_network.h)
//   safetensors  NAME.safetensors: the tensors under YOLOv5's names, in float32
//
// Errors: Error (exit 2).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom {

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
  double confidence_threshold = 0.25, iou_threshold = 0.45;
  int64_t most_per_class = 100;
};

// "images 1x3x640x640 -> output0 1x25200x85", one line per file written.
std::vector<std::string> export_weights(const ExportRequest& request);

}  // namespace headroom
