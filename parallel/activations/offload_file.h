// OffloadFile: bytes of tensors in an unnamed temporary file.
//
// On a CPU nothing is won by it but room: the file is how the offload policy is
// run, and tested, where there is no second memory.
//
// The file lies in the temporary directory (TMPDIR) and has no name there: it
// is gone when it is closed, however the process ends. Space that is given back
// is used again; the file never shrinks while it is open.
//
// Threads: one at a time. Errors: Error when the file cannot be made, when it
// would grow beyond its limit, when the disk is full.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace headroom::activations {

class OffloadFile {
 public:
  // limit_bytes 0: as much as the disk takes.
  explicit OffloadFile(int64_t limit_bytes);
  ~OffloadFile();
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;

  // The place of a copy of these bytes.
  int64_t write(const void* data, int64_t bytes);
  void read(int64_t place, void* data, int64_t bytes) const;
  void release(int64_t place, int64_t bytes);

  int64_t size() const { return size_; }  // of the file
  int64_t used_bytes() const { return used_; }

 private:
  int64_t find_place(int64_t bytes);

  const int64_t limit_;
  std::string directory_;
  int file_ = -1;
  int64_t size_ = 0;
  int64_t used_ = 0;
  std::map<int64_t, int64_t> gaps_;  // place to bytes, never two in a row
};

}  // namespace headroom::activations
