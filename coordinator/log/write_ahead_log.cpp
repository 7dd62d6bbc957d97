#include "coordinator/log/write_ahead_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "coordinator/run/restart_policy.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/checksum.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFrameBytes = WriteAheadLog::kFrameBytes;

std::string log_header(uint64_t before) {
  const std::string text = std::string(run_files::kLogMagic) +
                           number_bytes(WriteAheadLog::kVersion) +
                           number_bytes(before);
  return text + number_bytes(crc32c(text));
}

struct FramedRecord {
  uint64_t number = 0;
  uint32_t chain = 0;
  std::string_view frame;  // the fields before the chain
  std::string_view payload;
};

// Returns the record at `at` if it is complete and its CRC matches.
std::optional<FramedRecord> record_at(std::string_view bytes, size_t at) {
  if (bytes.size() - at < kFrameBytes) return std::nullopt;
  const size_t length = number_at<uint32_t>(bytes, at);
  if (length == 0 || length > WriteAheadLog::kMaxRecordBytes ||
      length > bytes.size() - at - kFrameBytes) {
    return std::nullopt;
  }
  FramedRecord record;
  record.frame = bytes.substr(at, 16);
  record.payload = bytes.substr(at + kFrameBytes, length);
  record.number = number_at<uint64_t>(bytes, at + 4);
  record.chain = number_at<uint32_t>(bytes, at + 16);
  const uint32_t crc = crc32c(record.payload, crc32c(bytes.substr(at, 12)));
  if (crc != number_at<uint32_t>(bytes, at + 12)) return std::nullopt;
  return record;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

constexpr const char* kRemedy =
    "restore it from a copy, or move it away and resume the run from its "
    "checkpoint";

Error refusal(const fs::path& file, const std::string& what,
              const std::string& remedy) {
  return Error(kLogTag, file.string() + " " + what, remedy);
}

}  // namespace

std::unique_ptr<WriteAheadLog> WriteAheadLog::open(
    const fs::path& file, std::vector<std::string>* records) {
  const fs::path lock_file = file.string() + run_files::kLogLockSuffix;
  const int lock = open_locked(lock_file, O_CREAT);
  if (lock < 0 && errno == EWOULDBLOCK) {
    throw refusal(file, "belongs to a coordinator that is running",
                  "stop that one first, or name another log");
  }
  if (lock < 0) {
    throw refusal(
        lock_file,
        std::string("cannot be opened and locked: ") + std::strerror(errno),
        "name a file in a folder that can be written");
  }
  std::unique_ptr<WriteAheadLog> log(new WriteAheadLog(file, lock));
  log->load(records);
  return log;
}

WriteAheadLog::~WriteAheadLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
  ::close(lock_);
}

void WriteAheadLog::load(std::vector<std::string>* records) {
  descriptor_ =
      ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
  if (descriptor_ < 0) {
    throw refusal(file_,
                  std::string("cannot be opened: ") + std::strerror(errno),
                  "name a file that can be written");
  }
  const std::string bytes = read_file();
  const std::string_view magic = run_files::kLogMagic;
  const bool is_begun =
      bytes.size() < kHeaderBytes &&
      bytes.substr(0, magic.size()) == magic.substr(0, bytes.size());
  // The file is new, or its first write was interrupted.
  if (is_begun && synced_number() == 0) {
    torn_bytes_ = static_cast<int64_t>(bytes.size());
    replace({});
    return;
  }
  if (!is_begun && !bytes.starts_with(magic)) {
    throw refusal(file_, "is no log of a coordinator", "move it away");
  }
  if (bytes.size() >= magic.size() + 4) {
    const auto version = number_at<uint32_t>(bytes, magic.size());
    if (version != kVersion) {
      throw refusal(file_,
                    cat("is of version ", version,
                        ", this program reads version ", kVersion),
                    "start the build that wrote it, or move it away");
    }
  }
  const size_t end = is_begun ? 0 : read_records(bytes, records);
  check_end(bytes, end);
  torn_bytes_ = static_cast<int64_t>(bytes.size() - end);
  if (torn_bytes_ > 0 &&
      (::ftruncate(descriptor_, static_cast<off_t>(end)) != 0 ||
       ::fsync(descriptor_) != 0)) {
    fail("cutting its torn end");
  }
  bytes_ = static_cast<int64_t>(end);
  written_ = number_;
}

std::string WriteAheadLog::read_file() const {
  std::string bytes;
  std::vector<char> block(size_t{1} << 20);
  for (;;) {
    const ssize_t count = ::pread(descriptor_, block.data(), block.size(),
                                  static_cast<off_t>(bytes.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw refusal(file_,
                    std::string("cannot be read: ") + std::strerror(errno),
                    kRemedy);
    }
    if (count == 0) return bytes;
    bytes.append(block.data(), static_cast<size_t>(count));
  }
}

size_t WriteAheadLog::read_records(std::string_view bytes,
                                   std::vector<std::string>* records) {
  const auto before =
      number_at<uint64_t>(bytes, run_files::kLogMagic.size() + 4);
  if (bytes.substr(0, kHeaderBytes) != log_header(before)) {
    throw refusal(file_, "is damaged in its first bytes", kRemedy);
  }
  number_ = before;
  chain_ = number_at<uint32_t>(bytes, kHeaderBytes - 4);
  size_t at = kHeaderBytes;
  while (const auto record = record_at(bytes, at)) {
    const uint64_t expected = number_ + 1;
    const uint32_t chain = crc32c(record->frame, chain_);
    if (record->number != expected || record->chain != chain) {
      throw refusal(
          file_,
          cat("has a broken chain: where record ", expected,
              " belongs there is ",
              record->number == expected ? "another of that number"
                                         : cat("record ", record->number),
              ", at byte ", at),
          kRemedy);
    }
    records->emplace_back(record->payload);
    number_ = expected;
    chain_ = chain;
    at += kFrameBytes + record->payload.size();
  }
  return at;
}

// Looks for a valid record at every offset after `end`: only an incomplete
// record may follow the last valid one. In the worst case the time is quadratic
// in the bytes after `end`; compaction bounds the log.
void WriteAheadLog::check_end(std::string_view bytes, size_t end) const {
  for (size_t behind = end + 1; behind < bytes.size(); ++behind) {
    const auto record = record_at(bytes, behind);
    if (!record) continue;
    throw refusal(
        file_,
        cat("is damaged at byte ", end, ", in record ", number_ + 1,
            ", and record ", record->number, " follows whole at byte ", behind),
        kRemedy);
  }
  const uint64_t synced = synced_number();
  if (number_ >= synced) return;
  throw refusal(
      file_,
      cat("was cut: it ends with record ", number_, ", and record ", synced,
          " was written"),
      std::string(kRemedy) + "; to go on without the last " +
          counted(static_cast<int64_t>(synced - number_), "decision") +
          ", remove " + file_.string() + run_files::kLogLockSuffix);
}

uint64_t WriteAheadLog::synced_number() const {
  char text[12];
  const ssize_t count = ::pread(lock_, text, sizeof(text), 0);
  if (count < 0) {
    throw refusal(file_.string() + run_files::kLogLockSuffix,
                  std::string("cannot be read: ") + std::strerror(errno),
                  kRemedy);
  }
  if (count != sizeof(text)) return 0;
  const std::string_view bytes(text, sizeof(text));
  return number_at<uint32_t>(bytes, 8) == crc32c(bytes.substr(0, 8))
             ? number_at<uint64_t>(bytes, 0)
             : 0;
}

// Called after the log is synced, so that the number is never ahead of the log.
void WriteAheadLog::note_synced(uint64_t number) {
  const std::string text = number_bytes(number);
  const std::string bytes = text + number_bytes(crc32c(text));
  if (::pwrite(lock_, bytes.data(), bytes.size(), 0) !=
      static_cast<ssize_t>(bytes.size())) {
    fail("noting what was synced beside");
  }
}

std::string WriteAheadLog::next_record(const std::string& payload) {
  const uint64_t number = ++number_;
  const std::string begin =
      number_bytes(static_cast<uint32_t>(payload.size())) +
      number_bytes(number);
  const std::string frame =
      begin + number_bytes(crc32c(payload, crc32c(begin)));
  chain_ = crc32c(frame, chain_);
  return frame + number_bytes(chain_) + payload;
}

void WriteAheadLog::append(const std::string& payload) {
  HEADROOM_CHECK(!payload.empty() && payload.size() <= kMaxRecordBytes,
                 cat(payload.size(), " bytes"));
  require_no_failure();
  const std::string record = next_record(payload);
  if (!write_all(descriptor_, record)) fail("appending");
  written_ = number_;
  bytes_ += static_cast<int64_t>(record.size());
}

void WriteAheadLog::sync() {
  require_no_failure();
  const uint64_t number = written_;
  if (::fdatasync(descriptor_) != 0) fail("syncing");
  note_synced(number);
}

bool WriteAheadLog::leads_here() const { return is_at(descriptor_, file_); }

void WriteAheadLog::replace(const std::vector<std::string>& records) {
  std::error_code ignored;
  if (!leads_here() && fs::exists(file_, ignored)) {
    errno = EEXIST;  // another process has created the file
    fail("replacing");
  }
  std::string bytes = log_header(number_);
  chain_ = number_at<uint32_t>(bytes, kHeaderBytes - 4);
  for (const std::string& record : records) bytes += next_record(record);
  const fs::path next = file_.string() + run_files::kNextLogSuffix;
  const int descriptor = open_anew(next, O_RDWR | O_APPEND, 0600);
  if (descriptor < 0) fail("replacing");
  if (!write_all(descriptor, bytes) || ::fsync(descriptor) != 0 ||
      ::rename(next.c_str(), file_.c_str()) != 0) {
    const int why = errno;
    ::close(descriptor);
    ::unlink(next.c_str());
    errno = why;
    fail("replacing");
  }
  const int old = descriptor_.exchange(descriptor);
  bytes_ = static_cast<int64_t>(bytes.size());
  const bool is_on_disk = sync_folder(file_.parent_path());
  if (old >= 0) ::close(old);
  if (!is_on_disk) fail("replacing");
  written_ = number_;
  note_synced(number_);
  has_failed_ = false;
}

void WriteAheadLog::clear() noexcept {
  // The log is truncated first, and FILE.lock with the record's number after
  // it. After a crash in between, only the number is left, and the next
  // coordinator refuses the log. In the other order, the records would be left
  // without a number and would be read again.
  if (::ftruncate(descriptor_, 0) != 0) return;
  bytes_ = 0;
  [[maybe_unused]] const int ignored = ::ftruncate(lock_, 0);
}

void WriteAheadLog::require_no_failure() const {
  if (!has_failed_) return;
  throw Error(kLogTag, file_.string() + " could not be written before",
              "name a log elsewhere", ExitCode::kResource);
}

void WriteAheadLog::fail(const std::string& doing) {
  has_failed_ = true;
  throw Error(
      kLogTag, doing + " " + file_.string() + ": " + std::strerror(errno),
      "free some space there, or name a log elsewhere", ExitCode::kResource);
}

}  // namespace headroom::coordinator
