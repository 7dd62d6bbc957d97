// onnx_network: converts a model with its weights to an ONNX graph.
//
// The layers are written from the table and the state, by network_walk.h. Batch
// norms are folded into their convolutions (in float64). The input is "images":
// [N, C, H, W], 0..1, with the channels of the table's `ch`.
//
// Errors: Error (exit 2) that names the layer if a module has no counterpart,
// or if the strides do not divide the size.
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
  OnnxGraph graph;  // the graph, still without outputs
  std::vector<OnnxLevel> levels;
  // For the inputs of some operators, the number below which the operator's
  // output is 0 (ExportedOperator::zero_below).
  std::map<std::string, double> zero_below;
};

// `model` was built from `table`. Uses only the size and type of the input from
// `options`.
OnnxBody make_onnx_body(const layers::ModelTable& table,
                        model::LayerGraph& model,
                        const OnnxHeadOptions& options,
                        const std::map<std::string, std::string>& metadata);

// Adds the head. Replaces `options.num_classes` by the model's.
OnnxGraph with_head(OnnxBody body, const model::LayerGraph& model,
                    OnnxHeadOptions options);

}  // namespace headroom::exporter
