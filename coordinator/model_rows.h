// Which model a run trains, and what its rows cost: read from files, so that
// the planner itself stays pure.
//
// Errors: Error (exit 2).
#pragma once

#include <string>
#include <vector>

#include "configs/row_cost.h"
#include "configs/run_config.h"

namespace headroom {

// --cfg; else what --weights says it holds; else yolov5s.
std::string model_of_run(const RunConfig& config);

// The classes are the table's own: a data set's number of classes changes
// Detect's row a little and no plan's admissibility, and the coordinator may
// run where the data set is not.
std::vector<RowCost> model_rows(const RunConfig& config);

// The same, or nothing where the plan does not depend on it: then a model file
// need not be there.
std::vector<RowCost> rows_for_plan(const RunConfig& config);

}  // namespace headroom
