// RunFolder: creates and holds the folder of a run before any process is
// started. Two runs that start at the same time with one name get two folders.
//
// The folder contains the coordinator's log and the run's join token until the
// run is over. A run that was refused leaves nothing: the folder is removed if
// it is empty.
//
// Errors: Error (exit 2) if the folder cannot be made, or if another run's
// coordinator writes there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "parallel/base/folder_place.h"
#include "parallel/base/run_files.h"

namespace headroom::cli {

class RunFolder {
 public:
  // Uses the folder `wanted` if it `may_exist`; otherwise creates `wanted`, or
  // the first of its numbered variants that does not exist.
  RunFolder(const std::filesystem::path& wanted, bool may_exist);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // The path of the coordinator's log, which may not exist yet.
  std::filesystem::path log_file() const {
    return path_ / run_files::kCoordinatorLog;
  }
  // The file with the token, for other programs of this user.
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

// Describes from the files what a resume can use: "the state after 12 steps is
// saved", or the newest checkpoint if the last state is not saved.
std::string saved_state(const std::filesystem::path& run_directory);

// If the run's folder is on another machine: leaves a note of it here for
// --resume, and returns a line that says where it is and what to type. "" if
// the folder is here.
std::string tell_elsewhere(const std::filesystem::path& run_directory,
                           const FolderPlace& place);
// Whether a coordinator on any machine holds the log of this run directory.
bool is_live(const std::filesystem::path& run_directory);

// Removes a coordinator's log and the files that belong to it, unless a
// coordinator of another run writes there by now.
void remove_run_log(const std::filesystem::path& log_file) noexcept;

}  // namespace headroom::cli
