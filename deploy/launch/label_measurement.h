// What a plan wants to know of a run's labels, asked of the program that reads
// data sets: headroom-worker label-statistics, a child of its own.
//
// Errors: Error (the worker's own, exit 2 or 4; exit 5 if it fails otherwise,
// 130 if somebody interrupts).
#pragma once

#include <functional>
#include <string>

#include "configs/run_config.h"

namespace headroom {

// The run's label_counts. REQUIRES: config.data.
using MeasureLabels = std::function<std::string(const RunConfig&)>;

std::string measure_labels(const RunConfig& config);

}  // namespace headroom
