// What a training run asks of its loaders on this rank, and how they share the
// host's memory. Errors: Error (exit 3) where --host-memory-limit is less than
// one batch of each needs.
#pragma once

#include "configs/run_config.h"
#include "parallel/collectives/mesh.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/host_memory.h"
#include "worker/data/loader/loader_options.h"
#include "worker/model/layer_graph.h"
#include "worker/step/run_data.h"

namespace headroom::validation {

// First step, hooks and a bound on memory are the caller's to add. With
// --image-weights images are drawn as before the first validation.
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

// Takes the data set's own image sizes. `layers` are the model's.
// REQUIRES: inputs with both data sets.
predict::HostMemory host_memory_of(
    const configs::RunConfig& config, const plan::Plan& plan,
    const step::RunData& inputs, const model::LayerGraph& model,
    const collectives::Mesh& mesh,
    const std::vector<layers::LayerCost>& layers);
// "8 threads …", for people.
std::string describe(const predict::HostMemory& memory);

}  // namespace headroom::validation
