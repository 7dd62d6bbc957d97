// run_loaders: what a training run asks of its loaders on this rank, and how
// they share the host's memory.
//
// Threads: pure functions. Errors: Error (exit 3) where --host-memory-limit is
// less than one batch of each needs.
#pragma once

#include "configs/memory/host_memory.h"
#include "configs/run_config.h"
#include "parallel/collectives/mesh.h"
#include "parallel/plan/plan.h"
#include "worker/data/loader_options.h"
#include "worker/model/layer_graph.h"
#include "worker/run_inputs.h"

namespace headroom {

// Without first step, hooks and a bound on memory. Drawn by weight as before
// the first validation.
LoaderOptions training_options(const RunConfig& config, const Plan& plan,
                               const RunInputs& inputs, const LayerGraph& model,
                               const Mesh& mesh);
LoaderOptions validation_options(const RunConfig& config, const Plan& plan,
                                 const Dataset& dataset,
                                 const LayerGraph& model, const Mesh& mesh);

// With the data set's own image sizes. `rows`: of the model.
// REQUIRES: inputs with both data sets.
HostMemory host_memory_of(const RunConfig& config, const Plan& plan,
                          const RunInputs& inputs, const LayerGraph& model,
                          const Mesh& mesh, const std::vector<RowCost>& rows);
// "8 threads …", for people.
std::string describe(const HostMemory& memory);

}  // namespace headroom
