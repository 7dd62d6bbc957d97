// FileStamp: how an index of files (folder_index.h) notices that a file is
// another one, without reading it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headroom::labels {

// What tells one state of a file from another without reading it.
struct FileStamp {
  uint64_t bytes = 0;
  int64_t modified = 0;  // nanoseconds
  // Nanoseconds: content, name, owner or permissions; 0: nobody knows.
  int64_t changed = 0;
  uint64_t inode = 0;

  bool operator==(const FileStamp&) const = default;
  // Are length and date the same, as programs that copy can make them?
  bool looks_like(const FileStamp& other) const {
    return bytes == other.bytes && modified == other.modified;
  }
};
// Nothing where there is no such file. A network's file system is asked, not
// what this machine remembers of it.
std::optional<FileStamp> stamp_of(const std::string& file);

// Does a file system of this type (statfs(2), f_type) set the time of the last
// change of status itself?
bool keeps_status_times(int64_t filesystem_type);

}  // namespace headroom::labels
