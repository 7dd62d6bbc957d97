#include "deploy/cli/plan/plan_files.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "parallel/base/check.h"
#include "parallel/plan/plan_json.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

void write_new(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    throw Error(
        "plan",
        "cannot write " + path.string() + " (" + std::strerror(errno) + ")",
        "name a writable folder with --write DIR");
  }
}

}  // namespace

void write_plan_files(const fs::path& folder, const configs::RunConfig& config,
                      const plan::Plan& plan) {
  const fs::path run = folder / "run.yaml";
  const fs::path how = folder / "plan.json";
  for (const fs::path& file : {run, how}) {
    // They may be those of a run.
    if (fs::exists(file)) {
      throw Error("plan", file.string() + " is there already",
                  "name another folder with --write DIR");
    }
  }
  std::error_code ignored;  // then the files cannot be written either
  fs::create_directories(folder, ignored);
  write_new(run, configs::to_yaml(config));
  write_new(how, plan::plan_to_json(plan));
}

}  // namespace headroom::cli
