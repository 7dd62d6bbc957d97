#include "deploy/cli/args/run_name.h"

#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"

namespace headroom::cli {
namespace fs = std::filesystem;

namespace {

bool is_resumable(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / run_files::kRun, ignored) &&
         fs::is_directory(directory / run_files::kCheckpoints, ignored);
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
  if (newest.empty()) {
    throw Error("resume",
                "no run under " + project.string() + " has a checkpoint",
                "name the run: --resume DIR");
  }
  return newest;
}

}  // namespace headroom::cli
