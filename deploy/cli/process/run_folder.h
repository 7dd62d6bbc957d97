// RunFolder: the folder of a run, held by the process that supervises it from
// before anything is started: two runs that are started with one name at the
// same time get two folders.
//
// The coordinator's log and the run's join token lie there, and go once the run
// is over. A run that
// was refused leaves nothing: the folder is removed again unless something was
// written to it.
//
// Errors: Error (exit 2) where the folder cannot be made, or another run's
// coordinator writes there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "parallel/base/run_files.h"

namespace headroom::cli {

class RunFolder {
 public:
  // `wanted` itself if it `may_exist`; else the first of it and its numbered
  // names that is free.
  RunFolder(const std::filesystem::path& wanted, bool may_exist);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Not there yet.
  std::filesystem::path log_file() const {
    return path_ / run_files::kCoordinatorLog;
  }
  // The file with the token for this user's other programs.
  std::filesystem::path token_file() const {
    return path_ / run_files::kJoinToken;
  }
  void write_token(const std::string& token) const;

 private:
  void make_parents(const std::filesystem::path& folder);
  void remove_what_is_empty() const;

  std::filesystem::path path_;
  // Folders that this process made, outermost first.
  std::vector<std::filesystem::path> made_;
};

// Does a coordinator hold the log of this run directory, on any machine that
// shares it?
bool is_live(const std::filesystem::path& run_directory);

// Removes a coordinator's log with what lies beside it. REQUIRES: nobody writes
// there.
void remove_run_log(const std::filesystem::path& log_file) noexcept;

}  // namespace headroom::cli
