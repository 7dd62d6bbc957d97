// LineFile: a file that grows by whole lines. A full disk keeps lines waiting
// in memory; they follow once there is room, so that the file has neither half
// a line nor a gap. One thread at a time.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace headroom {

class LineFile {
 public:
  // Each write opens or makes the file, which may be moved or removed between.
  explicit LineFile(std::filesystem::path path) : path_(std::move(path)) {}

  // `line` comes without its line feed.
  void add(const std::string& line) { waiting_ += line + '\n'; }
  // Appends what waits. Returns false where it cannot be written now; errno
  // says why.
  bool write();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::string waiting_;  // whole lines
};

}  // namespace headroom
