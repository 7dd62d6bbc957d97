// onnx_network: a model with its weights as an ONNX graph.
//
// Layer by layer, from the table and the state: batch norms are folded into
// their convolutions (in float64), SiLU is Sigmoid and Mul, Mish Softplus, Tanh
// and Mul, upsampling is Resize. The input is "images": [N, C, H, W], RGB or
// gray as the table's `ch` says, 0..1.
//
// Errors: Error (exit 2) naming the layer for a module
// that has no counterpart here, or a size that the strides do not divide.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/export/onnx_graph.h"
#include "worker/export/onnx_head.h"
#include "worker/model/layer_graph.h"

namespace headroom::exporter {

// The network up to the maps of its last convolutions.
struct OnnxBody {
  OnnxGraph graph;  // has no outputs yet
  std::vector<OnnxLevel> levels;
};

// `model` was built from `table`. Only the input's size and type are read from
// `options`.
OnnxBody make_onnx_body(const layers::ModelTable& table,
                        model::LayerGraph& model,
                        const OnnxHeadOptions& options,
                        const std::map<std::string, std::string>& metadata);

// Adds the head; `options.num_classes` is replaced by the model's.
OnnxGraph with_head(OnnxBody body, const model::LayerGraph& model,
                    OnnxHeadOptions options);

}  // namespace headroom::exporter
