// Where the indexes of files lie (folder_index.h), who may write one, and which
// have been of no use for long.
//
// An index INDEX has a lock INDEX.lock beside it.
#pragma once

#include <chrono>
#include <filesystem>

namespace headroom::labels {

// The folder where indexes are kept: $XDG_CACHE_HOME/headroom/folders, else
// ~/.cache/headroom/folders; "" where neither variable is set.
std::filesystem::path index_folder();

// The lock of an index, for as long as this lives, unless another process has
// it.
class IndexLock {
 public:
  explicit IndexLock(const std::filesystem::path& index);
  ~IndexLock();
  IndexLock(const IndexLock&) = delete;
  IndexLock& operator=(const IndexLock&) = delete;

  bool is_held() const { return is_held_; }
  // Why there can be no lock; 0 where another process has it.
  int error() const { return error_; }

 private:
  int file_ = -1;
  bool is_held_ = false;
  int error_ = 0;
};

// `used` is the index that a start goes by. Others of this user beside it that
// no start has used for `unused`, and that nobody writes, are removed.
void remove_unused_beside(const std::filesystem::path& used,
                          std::chrono::hours unused);

}  // namespace headroom::labels
