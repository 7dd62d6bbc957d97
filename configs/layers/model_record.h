// model_record: the model with which a run was started, stored in the run's
// folder, so that a resume uses the same model even if the file of --cfg was
// edited or the weights, which may contain their own table, were replaced.
//
// Models are compared by meaning: comments, spaces and nc (the number of
// classes) may change.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "configs/layers/model_table.h"

namespace headroom::layers {

// Reads the run's file run_files::kModel. Returns nullopt if an older build,
// which did not write the file, made the run.
std::optional<ModelTable> recorded_model(
    const std::filesystem::path& run_directory);

// The first difference: "layer 4 was [-1, 6, C3, [256]] and is now [-1, 9, C3,
// [256]]"; "" if they are the same network.
std::string model_difference(const ModelTable& before, const ModelTable& now);

// The remedy of a refused resume: a new run, from this run's weights if it has
// written some.
std::string how_to_start_anew(const std::filesystem::path& run_directory);

// Throws Error (exit 2) unless `recorded` and `now` are the same network.
// `source` is the file or name from which `now` was read.
void require_same_model(const ModelTable& recorded, const ModelTable& now,
                        const std::string& source,
                        const std::filesystem::path& run_directory);

}  // namespace headroom::layers
