// Chooses the folder for indexes of image files (folder_index.h), locks an
// index for writing, and removes indexes that have not been used for long.
//
// An index INDEX has a lock INDEX.lock beside it.
#pragma once

#include <chrono>
#include <filesystem>

namespace headroom::labels {

// The folder for indexes: $XDG_CACHE_HOME/headroom/folders, else
// ~/.cache/headroom/folders; "" if neither XDG_CACHE_HOME nor HOME is an
// absolute path.
std::filesystem::path index_folder();

// Takes the lock of an index and holds it during the lifetime of this object.
// If another process has the lock, is_held() is false.
class IndexLock {
 public:
  explicit IndexLock(const std::filesystem::path& index);
  ~IndexLock();
  IndexLock(const IndexLock&) = delete;
  IndexLock& operator=(const IndexLock&) = delete;

  bool is_held() const { return is_held_; }
  // errno if taking the lock failed; 0 if this or another process holds it.
  int error() const { return error_; }

 private:
  int file_ = -1;
  bool is_held_ = false;
  int error_ = 0;
};

// Marks `used` as used now. Removes the other indexes of this user in the same
// folder that no process has used for `unused` and that none is writing.
void remove_unused_beside(const std::filesystem::path& used,
                          std::chrono::hours unused);

}  // namespace headroom::labels
