// The options of a training run's loaders on this rank, and the loaders' shares
// of the host's memory. Errors: Error (exit 3) if --host-memory-limit is too
// small for one batch of each loader.
#pragma once

#include "configs/run_config.h"
#include "parallel/collectives/mesh.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/host_memory.h"
#include "worker/data/loader/loader_options.h"
#include "worker/model/layer_graph.h"
#include "worker/step/run_data.h"

namespace headroom::validation {

// The caller adds the first step, hooks and a memory limit to the options. With
// --image-weights, images are drawn by the weights that images have before the
// first validation.
loader::LoaderOptions training_options(const configs::RunConfig& config,
                                       const plan::Plan& plan,
                                       const step::RunData& inputs,
                                       const model::LayerGraph& model,
                                       const collectives::Mesh& mesh);
loader::LoaderOptions validation_options(const configs::RunConfig& config,
                                         const plan::Plan& plan,
                                         const labels::Dataset& dataset,
                                         const model::LayerGraph& model,
                                         const collectives::Mesh& mesh);

// Uses the image sizes of the data sets. `layers`: the model's layers.
// REQUIRES: `inputs` has a training and a validation set.
predict::HostMemory host_memory_of(
    const configs::RunConfig& config, const plan::Plan& plan,
    const step::RunData& inputs, const model::LayerGraph& model,
    const collectives::Mesh& mesh,
    const std::vector<layers::LayerCost>& layers);
// A text for users: "the loader may take 2.1 GiB of the host's memory (8
// threads, ...".
std::string describe(const predict::HostMemory& memory);

}  // namespace headroom::validation
