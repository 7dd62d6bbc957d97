#include "deploy/cli/args/run_name.h"

#include "deploy/records/older_copy.h"
#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace fs = std::filesystem;

namespace {

bool is_resumable(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / run_files::kRun, ignored) &&
         fs::is_directory(directory / run_files::kCheckpoints, ignored);
}

// Without a shared folder, what is here may be older than what another machine
// has, or nothing.
void require_newest_state(const fs::path& directory) {
  const auto copy = records::older_copy(directory);
  if (!copy) return;
  const std::string folder = directory.string();
  throw Error("resume", where_it_is(folder, copy->newest),
              how_to_reach_it(folder, copy->newest) +
                  (copy->steps > 0 && is_resumable(directory)
                       ? cat("; to go on from the older state here, after ",
                             counted(copy->steps, "step"), ", remove ",
                             shell_word(folder + "/" + kElsewhere))
                       : ""));
}

bool is_newer(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::last_write_time(a, error) > fs::last_write_time(b, error);
}

}  // namespace

fs::path project_folder(const configs::RunConfig& config) {
  return fs::absolute(config.project.empty() ? "runs/" + config.command
                                             : config.project)
      .lexically_normal();
}

fs::path new_run_directory(const configs::RunConfig& config) {
  const fs::path base = project_folder(config) / config.name;
  return config.exist_ok ? base : free_folder_name(base);
}

fs::path newest_run(const fs::path& project, const char* timed_file,
                    const std::function<bool(const fs::path&)>& belongs) {
  fs::path newest;
  fs::file_time_type newest_time{};
  std::error_code error, ignored;
  for (const fs::path& entry : entries_of(project, ignored)) {
    const fs::file_time_type time =
        fs::last_write_time(entry / timed_file, error);
    if (error || (!newest.empty() && time <= newest_time) || !belongs(entry)) {
      continue;
    }
    newest = entry;
    newest_time = time;
  }
  return newest;
}

fs::path run_directory_to_resume(const fs::path& project,
                                 const std::string& given) {
  if (!given.empty()) {
    fs::path directory = fs::absolute(given).lexically_normal();
    // RUN/weights/last.safetensors, or .pt as in YOLOv5.
    if (directory.parent_path().filename() == run_files::kWeights &&
        directory.stem() == fs::path(run_files::kLastWeights).stem()) {
      directory = directory.parent_path().parent_path();
    }
    require_newest_state(directory);
    if (!is_resumable(directory)) {
      throw Error("resume",
                  directory.string() +
                      " is no run to resume: it has no run.yaml or no "
                      "checkpoints folder",
                  "give the folder of a run that saved a checkpoint");
    }
    return directory;
  }
  fs::path newest = newest_run(project, run_files::kCheckpoints, is_resumable);
  const fs::path noted =
      newest_run(project, kElsewhere, [](const fs::path& directory) {
        return records::older_copy(directory).has_value();
      });
  if (!noted.empty() &&
      (newest.empty() ||
       is_newer(noted / kElsewhere, newest / run_files::kCheckpoints))) {
    require_newest_state(noted);
  }
  if (newest.empty()) {
    throw Error("resume",
                "no run under " + project.string() + " has a checkpoint",
                "name the run: --resume DIR");
  }
  return newest;
}

}  // namespace headroom::cli
