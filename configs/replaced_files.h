// replaced_files: files of an older run that a new run in its folder replaces.
#pragma once

#include <filesystem>
#include <string>

#include "configs/run_config.h"

namespace headroom::configs {

// Whether the name is last.safetensors, best.safetensors or of the form
// epoch12.safetensors.
bool is_weights_of_run(const std::string& file_name);

// Throws Error (exit 2) if a new run in `run_directory` (--exist-ok) would
// replace a file that the new run reads, including its `config_file` ("" if
// there is none).
void require_inputs_kept(const RunConfig& config,
                         const std::string& config_file,
                         const std::filesystem::path& run_directory);

}  // namespace headroom::configs
