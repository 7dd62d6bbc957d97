// LineFile: a file that grows by whole lines.
//
// A full disk keeps lines waiting in memory; they follow once there is room, so
// that the file has neither half a line nor a gap.
//
// Threads: one at a time.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace headroom {

class LineFile {
 public:
  // Opened, or made, by each write alone: it may be moved or removed between.
  explicit LineFile(std::filesystem::path path) : path_(std::move(path)) {}

  // `line`: without its line feed.
  void add(const std::string& line) { waiting_ += line + '\n'; }
  // Appends what waits. False: it cannot be written now, and errno says why.
  bool write();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::string waiting_;  // whole lines
};

}  // namespace headroom
