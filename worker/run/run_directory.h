// RunDirectory: the folder of a run. Only rank 0 writes. The folder is made
// after everything that can refuse a run has been checked, so that a refusal
// leaves nothing behind. Errors: Error (exit 2) when the folder cannot be made
// or written.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "parallel/base/run_files.h"

namespace headroom::run {

class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path root) : root_(std::move(root)) {}
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // Makes the folder and its sub-folders. With --exist-ok and --resume it
  // `may_exist`.
  // Holds a lock until destroyed or killed: two runs never write one folder.
  // Refuses when another holds it for longer than `patience` (a process of this
  // run that was killed may take seconds to end), and when less than
  // `needed_bytes` are free there, naming both.
  void create(bool may_exist, int64_t needed_bytes,
              std::chrono::milliseconds patience = {});

  // Makes the sub-folders, and the folder if it was removed.
  void make_sub_folders() const;

  // A new run may start in the folder of an older one (--exist-ok), which is
  // kept whole until the new one has committed a step: a mark says that it is
  // still there.
  void mark_older_run() const;   // does nothing if there is none
  bool holds_older_run() const;  // marked
  void keep_older_run() const;   // removes the mark
  // Removes the older run's weights, checkpoints, step log and pictures, each
  // known by its content or by that run's record. Files of those names that are
  // somebody's own are renamed to NAME.before. The mark stays.
  void remove_older_run() const;
  // Records what such a successor of this run may remove.
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
  int lock_ = -1;  // descriptor of the locked folder
};

}  // namespace headroom::run
