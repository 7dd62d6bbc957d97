// WriteAheadLog: records in a file that survive a crash of the process.
//
//   "HEADRWAL" | version u32 | number of the record before the first u64 |
//   CRC-32C u32 of the preceding fields, then for each record:
//   length u32 | number u64 | CRC-32C u32 of length, number and payload |
//   chain u32 | payload
//
// Integers are little-endian. Record numbers have no gap, even across
// replace(). The chain of a record is the CRC-32C of its frame (the fields
// before the chain), continued from the chain of the previous record, or from
// the header's CRC for the first record. A record that was removed, repeated,
// moved or exchanged breaks the chain, and the log is refused.
//
// After kill -9 the file has everything that append() wrote; after a power
// failure it has everything up to the last sync(). The file may then end with
// an incomplete record: open() cuts it off and reports torn_bytes(). If a
// damaged record is followed by a valid one, data was lost: the log is refused,
// with the offset. FILE.lock stores the number of the last synced record: a log
// that ends before this record was truncated and is refused.
//
// Only one process at a time may use a log: it holds an exclusive flock on
// FILE.lock, which the kernel releases however the process ends.
//
// Threads: append and replace from one thread at a time; sync() may run
// concurrently with append().
//
// Errors: open() throws Error (exit 2) naming the path if the log is in use, of
// another version, corrupt, or cannot be read. append, sync and replace throw
// Error (exit 5) if a system call fails. Afterwards only replace() may succeed:
// the file may end inside a record, and Linux drops data that a sync could not
// write and reports this once.
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

  // Creates the file if necessary. Appends the log's records to `records`.
  static std::unique_ptr<WriteAheadLog> open(const std::filesystem::path& file,
                                             std::vector<std::string>* records);
  ~WriteAheadLog();
  WriteAheadLog(const WriteAheadLog&) = delete;
  WriteAheadLog& operator=(const WriteAheadLog&) = delete;

  // REQUIRES: 0 < payload.size() <= kMaxRecordBytes.
  void append(const std::string& payload);
  // Makes everything appended so far survive a power failure.
  void sync();
  // Replaces all records by `records`: writes and syncs a new file, then
  // renames it over the old one.
  void replace(const std::vector<std::string>& records);
  // Returns false if the file was moved, removed or replaced by another one.
  bool leads_here() const;
  // Truncates the log to nothing, so that no outdated decision is read from it.
  void clear() noexcept;

  int64_t bytes() const { return bytes_; }
  // The newest record's number.
  uint64_t number() const { return number_; }
  // Bytes that open() cut off: a last record that was not written completely.
  int64_t torn_bytes() const { return torn_bytes_; }

 private:
  WriteAheadLog(std::filesystem::path file, int lock)
      : file_(std::move(file)), lock_(lock) {}
  void load(std::vector<std::string>* records);
  // Frames `payload` as the next record and advances number and chain.
  std::string next_record(const std::string& payload);
  // Returns the whole file. Throws if a read fails, because the records that
  // could not be read would otherwise look like a torn end and be cut off.
  std::string read_file() const;
  // Reads the records after the header. Returns the offset of their end.
  size_t read_records(std::string_view bytes,
                      std::vector<std::string>* records);
  void check_end(std::string_view bytes, size_t end) const;
  // The number stored in FILE.lock; 0 if there is none.
  uint64_t synced_number() const;
  void note_synced(uint64_t number);
  [[noreturn]] void fail(const std::string& doing);
  void require_no_failure() const;

  std::filesystem::path file_;
  int lock_ = -1;
  std::atomic<int> descriptor_ = -1;
  uint64_t number_ = 0;  // the newest record's number
  uint32_t chain_ = 0;   // the newest record's checksum
  // The newest record that is completely in the file. sync() reads it.
  std::atomic<uint64_t> written_ = 0;
  std::atomic<bool> has_failed_ = false;  // a write failed; replace() clears it
  std::atomic<int64_t> bytes_ = 0;
  int64_t torn_bytes_ = 0;
};

}  // namespace headroom::coordinator
