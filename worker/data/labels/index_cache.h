// Where the indexes of files are stored (folder_index.h), the lock for writing
// one, and the removal of those long unused.
//
// An index INDEX has a lock INDEX.lock beside it.
#pragma once

#include <chrono>
#include <filesystem>

namespace headroom::labels {

// The folder for indexes: $XDG_CACHE_HOME/headroom/folders, else
// ~/.cache/headroom/folders; "" if neither variable is set.
std::filesystem::path index_folder();

// Holds the lock of an index while it exists, unless another process has it:
// see is_held().
class IndexLock {
 public:
  explicit IndexLock(const std::filesystem::path& index);
  ~IndexLock();
  IndexLock(const IndexLock&) = delete;
  IndexLock& operator=(const IndexLock&) = delete;

  bool is_held() const { return is_held_; }
  // The errno if the lock cannot be used; 0 if another process holds it.
  int error() const { return error_; }

 private:
  int file_ = -1;
  bool is_held_ = false;
  int error_ = 0;
};

// Marks `used` as used now. Removes the other indexes of this user in its
// folder that no start has used for `unused` and that no process is writing.
void remove_unused_beside(const std::filesystem::path& used,
                          std::chrono::hours unused);

}  // namespace headroom::labels
