// Finds the run directories in a folder of runs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::records {

struct RunPlace {
  std::string id;  // the path below the requested folder, or the folder's name
  std::filesystem::path directory;
  bool operator==(const RunPlace&) const = default;
};
// Whether the folder is a run's: it has a run.yaml, and that is no link.
bool is_run(const std::filesystem::path& folder);

// The run directories at or below `folder`, at most two levels deep; the newest
// 200. Throws Error (exit 2) if there is none.
std::vector<RunPlace> runs_of(const std::filesystem::path& folder);

// The runs of all folders in their order, each run once, with unique ids.
std::vector<RunPlace> runs_of_all(const std::vector<std::string>& folders);

}  // namespace headroom::records
