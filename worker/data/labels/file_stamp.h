// FileStamp: detects that a file has changed without reading it. Used by the
// index of files (folder_index.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headroom::labels {

// The properties that show whether a file has changed.
struct FileStamp {
  uint64_t bytes = 0;
  int64_t modified = 0;  // nanoseconds
  // Time of the last change of content, name, owner or permissions, in
  // nanoseconds; 0 if the file system does not keep it reliably.
  int64_t changed = 0;
  uint64_t inode = 0;

  bool operator==(const FileStamp&) const = default;
  // Whether length and modification time are equal. Programs that copy files
  // can make them equal for different content.
  bool looks_like(const FileStamp& other) const {
    return bytes == other.bytes && modified == other.modified;
  }
};
// Returns nullopt if there is no such file. Asks the server of a network file
// system, not this machine's cache.
std::optional<FileStamp> stamp_of(const std::string& file);

// Whether a file system of this type (f_type of statfs(2)) sets the time of the
// last status change itself.
bool keeps_status_times(int64_t filesystem_type);

}  // namespace headroom::labels
