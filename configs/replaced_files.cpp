#include "configs/replaced_files.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "configs/options.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"

namespace headroom::configs {

namespace fs = std::filesystem;

bool is_weights_of_run(const std::string& file_name) {
  const fs::path name(file_name);
  const std::string stem = name.stem().string();
  if (file_name == run_files::kLastWeights ||
      file_name == run_files::kBestWeights) {
    return true;
  }
  const std::string_view prefix = run_files::kEpochPrefix;
  return name.extension() == run_files::kWeightsSuffix &&
         stem.starts_with(prefix) && stem.size() > prefix.size() &&
         std::all_of(stem.begin() + static_cast<ptrdiff_t>(prefix.size()),
                     stem.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

void require_inputs_kept(const RunConfig& config,
                         const std::string& config_file,
                         const fs::path& run_directory) {
  std::error_code ignored;
  const fs::path run = fs::weakly_canonical(run_directory, ignored);
  const auto is_replaced = [&](const fs::path& input) {
    const fs::path folder = input.parent_path();
    return (folder ==
                fs::weakly_canonical(run / run_files::kWeights, ignored) &&
            is_weights_of_run(input.filename())) ||
           folder.parent_path() ==
               fs::weakly_canonical(run / run_files::kCheckpoints, ignored) ||
           input == run / run_files::kModel || input == run / run_files::kRun;
  };
  std::vector<std::pair<std::string, std::string>> inputs = {
      {"--config", config_file}};
  for (const char* key : {"weights", "teacher", "cfg", "hyp_file"}) {
    const Option& option = *find_key(key);
    inputs.emplace_back(option.names.front(), value_text(config, option));
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
