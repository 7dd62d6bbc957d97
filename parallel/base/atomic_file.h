// AtomicFile: a file that is either not there or complete.
//
// The bytes go to "<path>.partial"; commit() brings them to disk, renames the
// file into place and brings the rename to disk. A crash at any point leaves
// the old file, or none, and at most a .partial that the next write replaces.
//
// One thread at a time, one writer per path. The destructor removes what was
// not committed. Errors: Error with exit code 5 (a full disk, a folder that is
// gone or cannot be written), naming the file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

struct XXH3_state_s;

namespace headroom {

// Brings what was made and renamed in a folder to disk. Where it returns false,
// errno says why.
bool sync_folder(const std::filesystem::path& folder);

// Takes the exclusive flock of an open file. Who asks whether it is held holds
// it shared for a moment: that is waited for, 200 ms at most. False where it is
// held longer.
bool lock_soon(int descriptor);

// Has the open file that name? Whoever had its lock before may have removed it.
bool is_at(int descriptor, const std::filesystem::path& file);

inline constexpr const char* kPartialSuffix = ".partial";

class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t num_bytes);

  // REQUIRES: not committed yet.
  void commit();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_;
  std::filesystem::path partial_path_;
  int descriptor_ = -1;
};

void write_whole_file(const std::filesystem::path& path,
                      std::string_view bytes);

// The XXH3-128 digest of bytes that come one after the other, as 32 lower-case
// hex digits. safetensors has no checksum of its own; manifests keep this one
// beside each file, and a file whose digest differs is refused.
class StreamDigest {
 public:
  StreamDigest();

  void add(const void* data, std::size_t num_bytes);
  std::string hex() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

// Throws Error naming the file when it cannot be read.
std::string file_digest(const std::filesystem::path& path);

// A file that grows by whole lines. A full disk keeps lines waiting
// in memory; they follow once there is room, so that the file has neither half
// a line nor a gap. One thread at a time.
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
