// replaced_files: the files of an older run that a new run in its folder
// replaces.
#pragma once

#include <filesystem>
#include <string>

#include "configs/run_config.h"

namespace headroom::configs {

// last.safetensors, best.safetensors, epoch12.safetensors
bool is_weights_of_run(const std::string& file_name);

// Throws Error (exit 2) where a new run in `run_directory` would replace a file
// that it starts from (--exist-ok), its --config among them ("" for none).
void require_inputs_kept(const RunConfig& config,
                         const std::string& config_file,
                         const std::filesystem::path& run_directory);

}  // namespace headroom::configs
