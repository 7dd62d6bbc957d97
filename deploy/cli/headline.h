// The first line of a run, for people: what is about to be trained or judged.
//
// Errors: Error (exit 2) for a model that cannot be read and that the plan
// depends on.
#pragma once

#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "deploy/cli/run_request.h"

namespace headroom::cli {

// "96 x 96 (rounded up from 65 x 65)": the network's input. Without layers the
// largest stride is not known, and the size is as it was asked for.
std::string image_size_text(const configs::RunConfig& config,
                            const std::vector<layers::LayerCost>& layers);

std::string headline(const RunRequest& request);

}  // namespace headroom::cli
