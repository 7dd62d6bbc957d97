// WriteAheadLog: records that outlive their process, in one file.
//
//   "HEADRWAL" | version u32 | then per record:
//   length u32 | CRC-32C u32 of length and payload | payload
//
// Numbers are little-endian. What kill -9 leaves is everything that append()
// wrote; what a power failure leaves is everything before the last sync(). The
// end may then be torn: it is cut. A record that does not check with a good one
// behind it is no torn end: the log is refused, with the offset, since nobody
// can know what is missing.
//
// One process at a time: an exclusive flock on FILE.lock, which the kernel
// lets go of when the process dies, however it does.
//
// Threads: append and replace from one thread at a time; sync() may run beside
// append().
// Errors: open() throws Error (exit 2: in use, of another version, corrupt; the
// path is named). append, sync, replace throw Error (exit 5) if the system
// refuses; a sync that failed is never tried again (Linux forgets what it could
// not write), so the log must be given up then.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::coordinator {

// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4: the check of every
// record of the write-ahead log.

// Of `bytes`, going on from `crc` (0: from the start).
uint32_t crc32c(std::string_view bytes, uint32_t crc = 0);

class WriteAheadLog {
 public:
  static constexpr uint32_t kVersion = 1;
  static constexpr size_t kHeaderBytes = 12;
  static constexpr size_t kMaxRecordBytes = size_t{64} << 20;

  // Makes the file if it is not there. `records` gets what it holds.
  static std::unique_ptr<WriteAheadLog> open(const std::filesystem::path& file,
                                             std::vector<std::string>* records);
  ~WriteAheadLog();
  WriteAheadLog(const WriteAheadLog&) = delete;
  WriteAheadLog& operator=(const WriteAheadLog&) = delete;

  // REQUIRES: 0 < payload.size() <= kMaxRecordBytes.
  void append(const std::string& payload);
  // Everything appended so far outlives a power failure.
  void sync();
  // These records instead of all others: a new file, synced, renamed over it.
  void replace(const std::vector<std::string>& records);
  // Forgets everything: an empty log says nothing wrong.
  void clear() noexcept;

  int64_t bytes() const { return bytes_; }
  // Bytes that open() cut off the end.
  int64_t torn_bytes() const { return torn_bytes_; }

 private:
  WriteAheadLog(std::filesystem::path file, int lock)
      : file_(std::move(file)), lock_(lock) {}
  void load(std::vector<std::string>* records);
  [[noreturn]] void fail(const std::string& doing) const;

  std::filesystem::path file_;
  int lock_ = -1;
  std::atomic<int> descriptor_ = -1;
  int64_t bytes_ = 0;
  int64_t torn_bytes_ = 0;
};

// A record as it lies in the file.
std::string framed_record(const std::string& payload);

}  // namespace headroom::coordinator
