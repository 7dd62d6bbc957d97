// Reads the model of a run and its layers' costs from files, so that the
// planner itself reads no files. Failures are thrown as Error (exit 2).
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

// The run's model as a name or a file: the value of --cfg, else the model in
// the --weights file, else yolov5s.
std::string model_of_run(const configs::RunConfig& config);

// The shipped models of the same family as `cfg` that are smaller, the largest
// first; none if `cfg` is a user's own file.
std::vector<std::string> smaller_models(const std::string& cfg);

// The layers of the run's model, from the model's file or from the weights.
layers::ModelTable table_of_run(const configs::RunConfig& config);

// The metadata in a weights file.
std::map<std::string, std::string> metadata_of_weights(const std::string& file);

// The number of classes in the run's data set. No value if the data set cannot
// be read: the coordinator may run on a machine without the data set.
std::optional<int64_t> num_classes_of_run(const configs::RunConfig& config);

// The layers' costs, with the data set's number of classes if known, else with
// the number in the model table.
std::vector<layers::LayerCost> model_layers(const configs::RunConfig& config);

// Like model_layers(), but returns no layers if the model cannot be read here
// and the plan does not need it (plan_needs_layers). The plan then has no
// predicted bytes.
std::vector<layers::LayerCost> layers_for_plan(
    const configs::RunConfig& config);

// Reads the file of a run's teacher, if any, and sets teacher_model and
// teacher_digest: the plan counts the teacher's bytes, and a resumed run must
// use the same teacher. Called at the first start. Throws Error if the file
// does not exist, has no model, or has a model that is not shipped with
// Headroom.
void describe_teacher(configs::RunConfig& config);

}  // namespace headroom::planner
