// LogFolder: a folder of this process alone for its coordinator's log, which
// has no use once the run is over.
//
// Held by a lock that the kernel lets go of with the process. Those of
// processes that were killed are removed by the next one that makes its own.
//
// Errors: Error (exit 2) if no folder can be made.
#pragma once

#include <filesystem>
#include <string>

namespace headroom::cli {

class LogFolder {
 public:
  // Below `parent`: the folder for temporary files.
  explicit LogFolder(const std::filesystem::path& parent);
  ~LogFolder();  // removes it
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string log_file() const { return (path_ / "coordinator.log").string(); }

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace headroom::cli
