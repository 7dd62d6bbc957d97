#include "deploy/cli/launched_again.h"

#include <cstdio>
#include <filesystem>
#include <sstream>

#include "configs/run_config.h"
#include "configs/yaml/strict_yaml.h"
#include "deploy/cli/args/run_name.h"
#include "deploy/cli/run_request.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

// The file in the run's folder that identifies the job.
constexpr const char* kJobFile = ".launcher-job";

bool is_same_job(const LauncherJob& job, const fs::path& run) {
  constexpr uint64_t kMostBytes = 1 << 16;
  std::istringstream in(
      text_of_file(run / kJobFile, kMostBytes, Links::kRefused).value_or(""));
  std::string starter, key;
  if (!std::getline(in, starter) || !std::getline(in, key)) return false;
  if (!starter.empty() && starter == job.starter) return true;
  // A different launcher process on the same machine belongs to another job. On
  // another machine it may belong to the same job.
  const std::string machine = job.starter.substr(0, job.starter.find(':') + 1);
  if (!machine.empty() && starter.starts_with(machine)) return false;
  return job.restarts > 0 && !key.empty() && key == job.run_key;
}

}  // namespace

void record_job(const LauncherJob& job, const std::string& run_directory) {
  if (job.launcher->restarts.empty()) return;
  try {
    write_whole_file(fs::path(run_directory) / kJobFile,
                     job.starter + "\n" + job.run_key + "\n");
  } catch (const Error& error) {
    // The run trains without it; only a job that is started again cannot find
    // the run by itself.
    std::fprintf(stderr, "warning: %s\n", error.what());
  }
}

std::string go_on_with_earlier_run(const LauncherJob& job, CommandLine& line) {
  if (job.launcher->restarts.empty() || line.command != "train") return "";
  const configs::RunConfig config =
      configs::run_config_from_flags(line.command, line.run_flags);
  if (!config.resume.empty()) return "";
  const fs::path run = newest_run(
      project_folder(config), kJobFile,
      [&](const fs::path& directory) { return is_same_job(job, directory); });
  if (run.empty()) return "";
  const std::string again =
      job.place.launcher + " has started this job again: ";
  if (records::checkpoints_in(run).empty()) {
    std::erase_if(line.run_flags, [](const configs::FlagUse& use) {
      return use.spelling == "--name" || use.spelling == "--exist-ok";
    });
    line.run_flags.push_back({"--name", {run.filename().string()}});
    line.run_flags.push_back({"--exist-ok", {}});
    return again + run.string() + " has no checkpoint yet, and begins anew";
  }
  line.run_flags = {{"--resume", {run.string()}}};
  const std::string file = run / run_files::kRun;
  const configs::RunConfig saved =
      configs::parse_run_config(yaml::read_config_file(file, "resume"), file);
  // The number for a new run: the other agents compute the same number.
  const int now = workers_per_agent(config, /*is_resumed=*/false,
                                    /*processes_given=*/false, job.place.size,
                                    job.local_workers, job.place);
  if (saved.processes != int64_t{job.place.size} * now) {
    line.run_flags.push_back({"--processes", {std::to_string(now)}});
  }
  return again + "the run in " + run.string() + " goes on";
}

}  // namespace headroom::cli
