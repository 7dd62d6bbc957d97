// stage_layers: what training and evaluation share of running one stage's
// layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/pipeline/skip_routes.h"
#include "worker/model/layer_graph.h"

namespace headroom::step {

// `received`: the maps of routes.received, in that order. Returns those of
// routes.sent, or the heads where the last layer is kept.
std::vector<at::Tensor> run_stage_layers(model::LayerGraph& model,
                                         const pipeline::StageRoutes& routes,
                                         std::vector<at::Tensor> received,
                                         const at::Tensor& images,
                                         const model::StepContext& context);

// Sizes of the map of `layer` for `samples` images. `pixels` [n, rows, W, 3]:
// the image rows that are here.
std::vector<int64_t> stage_map_sizes(const model::LayerGraph& model, int layer,
                                     int64_t samples, const at::Tensor& pixels);

}  // namespace headroom::step
