// Reads the model of a run and its layers' costs from files, so that the
// planner itself reads none. Errors: Error (exit 2).
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

// The model of --cfg; else the model named in --weights; else yolov5s.
std::string model_of_run(const configs::RunConfig& config);

// The layers of that model, from its file or from the weights.
layers::ModelTable table_of_run(const configs::RunConfig& config);

// The metadata in a weights file.
std::map<std::string, std::string> metadata_of_weights(const std::string& file);

// The number of classes in the run's data set. Nothing if it cannot be read:
// the coordinator may run on a machine without the data set.
std::optional<int64_t> num_classes_of_run(const configs::RunConfig& config);

// The layers' costs, with the data set's number of classes if known, else the
// model table's.
std::vector<layers::LayerCost> model_layers(const configs::RunConfig& config);

// Like model_layers(), but returns no layers if the model cannot be read here
// and the plan does not need it (plan_needs_layers). The plan then has no
// predicted bytes.
std::vector<layers::LayerCost> layers_for_plan(
    const configs::RunConfig& config);

// Reads the file of a run's teacher, if any, and sets teacher_model and
// teacher_digest: the plan needs its bytes, and a resumed run must use the same
// teacher. Called at the first start. Errors: no such file, no model, a model
// that is not shipped.
void describe_teacher(configs::RunConfig& config);

}  // namespace headroom::planner
