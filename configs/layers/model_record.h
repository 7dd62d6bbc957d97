// model_record: the model that a run was started with, kept in its folder, so
// that nothing goes on with another one: the file that --cfg names may be
// edited in between, and weights that brought their own table may be replaced.
//
// Compared by meaning: comments, spaces and nc (the data's classes count) may
// change.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "configs/layers/model_table.h"

namespace headroom::layers {

// Reads run_files::kModel. None: an older build started the run without it.
std::optional<ModelTable> recorded_model(
    const std::filesystem::path& run_directory);

// "layer 4 was [-1, 6, C3, [256]] and is now [-1, 9, C3, [256]]", the first
// that differs; "": they are the same network.
std::string model_difference(const ModelTable& before, const ModelTable& now);

// The remedy of a refused resume: a new run, from this run's weights where an
// epoch has written some.
std::string how_to_start_anew(const std::filesystem::path& run_directory);

// Throws Error (exit 2) unless the two are the same network. `source`: the file
// or name that `now` was read from.
void require_same_model(const ModelTable& recorded, const ModelTable& now,
                        const std::string& source,
                        const std::filesystem::path& run_directory);

}  // namespace headroom::layers
