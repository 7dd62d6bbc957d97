#include "configs/run_files.h"

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>
#include <vector>

#include "configs/knobs.h"
#include "configs/layers/model_record.h"
#include "parallel/base/check.h"

namespace headroom::configs {

namespace fs = std::filesystem;

bool is_weights_of_run(const std::string& file_name) {
  const fs::path name(file_name);
  const std::string stem = name.stem().string();
  if (name.extension() != ".safetensors") return false;
  if (stem == "last" || stem == "best") return true;
  return stem.starts_with("epoch") && stem.size() > 5 &&
         std::all_of(stem.begin() + 5, stem.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

void require_inputs_kept(const RunConfig& config,
                         const std::string& config_file,
                         const fs::path& run_directory) {
  std::error_code ignored;
  const fs::path run = fs::weakly_canonical(run_directory, ignored);
  const auto is_replaced = [&](const fs::path& input) {
    const fs::path folder = input.parent_path();
    return (folder == fs::weakly_canonical(run / "weights", ignored) &&
            is_weights_of_run(input.filename())) ||
           folder.parent_path() ==
               fs::weakly_canonical(run / "checkpoints", ignored) ||
           input == run / layers::kModelRecord || input == run / "run.yaml";
  };
  std::vector<std::pair<std::string, std::string>> inputs = {
      {"--config", config_file}};
  for (const char* key : {"weights", "teacher", "cfg", "hyp_file"}) {
    const Knob& knob = *find_knob(key);
    inputs.emplace_back(knob.flag.spellings.front(), value_text(config, knob));
  }
  for (const auto& [flag, file] : inputs) {
    if (file.empty() || !is_replaced(fs::weakly_canonical(file, ignored))) {
      continue;
    }
    throw Error("run",
                flag + " " + file + " is a file of the run in " +
                    run_directory.string() +
                    ", which --exist-ok would replace with the new run's",
                "leave --exist-ok out, give another --name, or copy the file "
                "elsewhere first");
  }
}

}  // namespace headroom::configs
