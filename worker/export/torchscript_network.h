// torchscript_network: converts a model with its weights to a TorchScript
// module, for programs that use LibTorch or PyTorch without this program.
//
//   forward(images [N, C, H, W], 0..1) -> [N, rows, 5 + classes], as
//   LayerGraph::decode gives them, for sides that the largest stride divides;
//   without anchors [N, 4 + classes, rows], as in ONNX (onnx_head.h)
//
// Batch norms are folded into their convolutions (network_walk.h). The weights
// are buffers, so that .to(device) moves them. As in YOLOv5's export the
// archive has an extra file config.txt: {"shape", "stride", "names"}.
//
// Errors: Error (exit 2) that names the layer if a module has no counterpart.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>

#include "configs/layers/model_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::exporter {

struct TorchscriptOptions {
  // The network's type; boxes are at least float32.
  at::ScalarType type = at::kFloat;
  int64_t batch = 1, height = 640, width = 640;  // written to config.txt
};

// Returns the bytes of the archive. `model` was built from `table`; `metadata`
// has "names", a list as JSON.
std::string make_torchscript_network(
    const layers::ModelTable& table, model::LayerGraph& model,
    const TorchscriptOptions& options,
    const std::map<std::string, std::string>& metadata);

}  // namespace headroom::exporter
