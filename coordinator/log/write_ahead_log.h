// WriteAheadLog: records that outlive their process, in one file.
//
//   "HEADRWAL" | version u32 | number of the record before the first u64 |
//   CRC-32C u32 of all that, then per record:
//   length u32 | number u64 | CRC-32C u32 of length, number and payload |
//   chain u32 | payload
//
// Numbers are little-endian. Records are numbered without a gap, also across
// replace(). The chain of a record is the CRC-32C of the frame before it, going
// on from the chain of the record before, or from the header's CRC: a record
// that is removed, doubled, moved or exchanged breaks it, and the log is
// refused with the record's number.
//
// What kill -9 leaves is everything that append() wrote; what a power failure
// leaves is everything before the last sync(). The end may then be torn: it is
// cut, and torn_bytes() says so. A record that does not check with a good one
// behind it is no torn end: the log is refused, with the offset, since nobody
// can know what is missing. FILE.lock holds the number that was synced last: a
// log that ends before it was cut, and is refused.
//
// One process at a time: an exclusive flock on FILE.lock, which the kernel
// releases when the process dies, however it does.
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

class WriteAheadLog {
 public:
  static constexpr uint32_t kVersion = 3;
  static constexpr size_t kHeaderBytes = 24;
  static constexpr size_t kFrameBytes = 20;
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
  // Whether the file's name still leads to it: it may have been moved or
  // removed.
  bool leads_here() const;
  // Forgets everything: an empty log says nothing wrong.
  void clear() noexcept;

  int64_t bytes() const { return bytes_; }
  // The newest record's number.
  uint64_t number() const { return number_; }
  // Bytes that open() cut off the end: a record that was not written to its
  // end.
  int64_t torn_bytes() const { return torn_bytes_; }

 private:
  WriteAheadLog(std::filesystem::path file, int lock)
      : file_(std::move(file)), lock_(lock) {}
  void load(std::vector<std::string>* records);
  // `payload` as the next record, of which the chain goes on.
  std::string next_record(const std::string& payload);
  // Reads the records behind the header; returns where they end.
  size_t read_records(std::string_view bytes,
                      std::vector<std::string>* records);
  void check_end(std::string_view bytes, size_t end) const;
  // The number in FILE.lock; 0 where there is none.
  uint64_t synced_number() const;
  void note_synced(uint64_t number);
  [[noreturn]] void fail(const std::string& doing) const;

  std::filesystem::path file_;
  int lock_ = -1;
  std::atomic<int> descriptor_ = -1;
  uint64_t number_ = 0;  // the newest record's number
  uint32_t chain_ = 0;   // the newest record's checksum
  // Up to which number all is in the file: sync() may run beside append().
  std::atomic<uint64_t> written_ = 0;
  int64_t bytes_ = 0;
  int64_t torn_bytes_ = 0;
};

}  // namespace headroom::coordinator
