// The model that a run trains, and what its layers cost: read from files, so
// that the planner itself stays pure. Errors: Error (exit 2).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "configs/run_config.h"

namespace headroom::planner {

// The model of --cfg; else what --weights says it holds; else yolov5s.
std::string model_of_run(const configs::RunConfig& config);

// The layers of that model, as its file or the weights have them.
layers::ModelTable table_of_run(const configs::RunConfig& config);

// What a file of weights says of itself.
std::map<std::string, std::string> metadata_of_weights(const std::string& file);

// The number of classes of the run's data set; nothing where it cannot be read
// here: the coordinator may run where the data set is not.
std::optional<int64_t> num_classes_of_run(const configs::RunConfig& config);

// The layers' costs, with the data set's classes where they are known, else the
// table's own.
std::vector<layers::LayerCost> model_layers(const configs::RunConfig& config);

// The same, but where the plan does not depend on them (plan_needs_layers), a
// model that cannot be read here gives no layers, and the plan no predicted
// bytes.
std::vector<layers::LayerCost> layers_for_plan(
    const configs::RunConfig& config);

// Reads the file of a run's teacher, if it has one, and sets teacher_model and
// teacher_digest, so that its bytes can be planned and nobody goes on with
// another. Called when the run is first started. Errors: no such file, no
// model, one that is not shipped.
void describe_teacher(configs::RunConfig& config);

}  // namespace headroom::planner
