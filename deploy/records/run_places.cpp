#include "deploy/records/run_places.h"

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"

namespace headroom::records {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostRuns = 200;

void find_runs(const fs::path& folder, const std::string& below, int levels,
               std::vector<RunPlace>& places) {
  std::error_code error;
  for (const fs::path& entry : entries_of(folder, error)) {
    std::error_code ignored;
    if (!fs::is_directory(fs::symlink_status(entry, ignored))) continue;
    const std::string id = below + entry.filename().string();
    if (is_run(entry)) {
      places.push_back({id, entry});
    } else if (levels > 1) {
      find_runs(entry, id + "/", levels - 1, places);
    }
  }
}

}  // namespace

bool is_run(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(
      fs::symlink_status(folder / run_files::kRun, error));
}

std::vector<RunPlace> runs_of(const fs::path& folder) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(folder, error);
  if (is_run(folder)) return {{whole.filename().string(), whole}};
  std::vector<RunPlace> places;
  find_runs(whole, "", 2, places);
  if (places.empty()) {
    throw Error("run",
                folder.string() + " has no run.yaml, nor has a folder in it",
                "name a run directory or a folder of them, for example "
                "runs/train/exp or runs/train");
  }
  std::map<fs::path, fs::file_time_type> times;
  for (const RunPlace& place : places) {
    std::error_code ignored;
    times[place.directory] =
        fs::last_write_time(place.directory / run_files::kRun, ignored);
  }
  std::ranges::sort(places, [&](const RunPlace& a, const RunPlace& b) {
    return std::pair(times[b.directory], a.id) <
           std::pair(times[a.directory], b.id);
  });
  if (places.size() > kMostRuns) places.resize(kMostRuns);
  return places;
}

std::vector<RunPlace> runs_of_all(const std::vector<std::string>& folders) {
  std::vector<RunPlace> runs;
  for (const std::string& folder : folders) {
    for (RunPlace& place : runs_of(folder)) {
      bool is_known = false, has_namesake = false;
      for (const RunPlace& other : runs) {
        is_known |= other.directory == place.directory;
        has_namesake |= other.id == place.id;
      }
      if (is_known) continue;
      if (has_namesake) place.id = place.directory.string();
      runs.push_back(std::move(place));
    }
  }
  return runs;
}

}  // namespace headroom::records
