// AtomicFile: a file that is either complete or absent.
//
// The bytes are written to "<path>.partial". commit() flushes them to disk,
// renames the file into place and flushes the folder. After a crash at any
// point the path holds the old file or no file; a .partial file may remain, and
// the next write replaces it.
//
// Use it from one thread, with one writer per path. The destructor removes a
// file that was not committed. Throws Error with exit code 5, naming the file,
// if the disk is full or the folder is missing or read-only.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

struct XXH3_state_s;

namespace headroom {

// Flushes a folder to disk, so that new and renamed files in it survive a
// crash. Returns false, with the reason in errno, if that fails.
bool sync_folder(const std::filesystem::path& folder);

// Takes the exclusive flock of an open file. A process that only tests the lock
// holds it shared for a moment, so this tries again for up to 200 ms. Returns
// false, with EWOULDBLOCK in errno if the lock is held longer.
bool lock_soon(int descriptor);

// Returns true if `file` still names the open file. The previous holder of its
// lock may have removed or replaced the file meanwhile.
bool is_at(int descriptor, const std::filesystem::path& file);

// Opens `file` for reading and writing, with `flags` in addition, and takes its
// lock by lock_soon(). If the file was removed or replaced before it was
// locked, opens the file that has its name now. Returns the descriptor, or -1
// with the reason in errno.
int open_locked(const std::filesystem::path& file, int flags);

// Creates a new file, and replaces an existing one. In the folder of another
// user the existing file may be a link, so that the bytes would go to a file
// elsewhere, or a pipe, for which open() would wait forever. Returns the
// descriptor, or -1 with the reason in errno.
int open_anew(const std::filesystem::path& path, int flags, mode_t mode);

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

// XXH3-128 digest of bytes added in pieces, as 32 lower-case hex digits.
// safetensors has no checksum of its own, so manifests record this digest for
// each file, and a file whose digest differs is refused.
class StreamDigest {
 public:
  StreamDigest();

  void add(const void* data, std::size_t num_bytes);
  std::string hex() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

// Throws Error naming the file if it cannot be read.
std::string file_digest(const std::filesystem::path& path);

// A file that grows by whole lines. If the disk is full, lines are kept in
// memory and written once there is room, so the file never has half a line or a
// gap. The kept lines are not bounded. A symbolic link or a pipe of that name
// is refused (file_fault() in regular_file.h). Use it from one thread.
class LineFile {
 public:
  // Each write opens or creates the file, because the file may be moved between
  // two writes.
  explicit LineFile(std::filesystem::path path) : path_(std::move(path)) {}

  // `line` has no line feed at its end.
  void add(const std::string& line) { waiting_ += line + '\n'; }
  // Appends the lines that are not written yet. Returns false, with the reason
  // in errno, if the file cannot be written now; the lines are kept.
  bool write();
  // Cuts off all bytes after the first `size`; makes the file if there is none.
  // Returns false, with the reason in errno, if that fails.
  bool cut_to(uint64_t size);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::string waiting_;  // whole lines that are not written yet
};

}  // namespace headroom
