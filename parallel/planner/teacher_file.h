// teacher_file: what the file of a run's teacher is, read when the run is first
// started, so that its bytes can be planned and nobody goes on with another.
//
// Errors: Error (exit 2): no such file, no model, one that is not shipped.
#pragma once

#include "configs/run_config.h"

namespace headroom::planner {

// Sets teacher_model and teacher_digest; nothing where there is no teacher.
void describe_teacher(configs::RunConfig& config);

}  // namespace headroom::planner
