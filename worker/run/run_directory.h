// RunDirectory: the folder of a run. Only rank 0 writes. It is created after
// everything that can refuse a run has been checked, so that a refused run
// leaves no folder. Errors: Error (exit 2) if the folder cannot be made or
// written.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "parallel/base/folder_place.h"
#include "parallel/base/run_files.h"

namespace headroom::run {

class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path root) : root_(std::move(root)) {}
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // Makes the folder and its sub-folders. `may_exist`: set with --exist-ok and
  // --resume. Locks the folder until this object is destroyed or the process
  // ends: two runs never write to one folder. Throws Error if another process
  // holds the lock for longer than `patience` (a killed process of this run may
  // take seconds to end). Throws Error that has both numbers if fewer than
  // `needed_bytes` bytes are free.
  void create(bool may_exist, int64_t needed_bytes,
              std::chrono::milliseconds patience = {});

  // Makes missing sub-folders, and the folder if it was removed.
  void make_sub_folders() const;

  // A new run may start in the folder of an older run (--exist-ok). The older
  // run is kept, and marked by a small file, until the new run commits a step.
  void mark_older_run() const;   // no effect without an older run
  bool holds_older_run() const;  // whether the mark exists
  void keep_older_run() const;   // removes the mark
  // Removes the older run's weights, checkpoints, step log and pictures. They
  // are identified by their content or by the older run's record of files. A
  // user's own files with such names are renamed to NAME.before. Keeps the
  // mark.
  void remove_older_run() const;
  // Renames a folder of another run that has this path on this machine, which
  // does not share the run's folder. Returns its new name; "" if there is none.
  // REQUIRES: rank 0 of the run has written its folder, wherever.
  std::filesystem::path set_aside_other_run(const std::string& run_id) const;
  // Records which files a later run in this folder may remove.
  void record_files() const;

  // Writes a small text file under a temporary name and renames it into place.
  void write_text(const std::string& name, const std::string& text) const;

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path weights() const { return root_ / run_files::kWeights; }
  std::filesystem::path checkpoints() const {
    return root_ / run_files::kCheckpoints;
  }

 private:
  void lock(std::chrono::milliseconds patience);

  std::filesystem::path root_;
  int lock_ = -1;  // file descriptor of the lock
};

}  // namespace headroom::run
