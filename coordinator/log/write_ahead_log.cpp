#include "coordinator/log/write_ahead_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "parallel/base/check.h"

namespace headroom::coordinator {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[byte] = crc;
  }
  return table;
}

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t crc) {
  static constexpr std::array<uint32_t, 256> table = make_table();
  crc = ~crc;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~crc;
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "HEADRWAL";
constexpr size_t kFrameBytes = 8;

std::string little_endian(uint32_t number) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) {
    bytes += static_cast<char>(number >> shift & 0xff);
  }
  return bytes;
}

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) {
    number |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + i]))
              << (8 * i);
  }
  return number;
}

std::string header() {
  return std::string(kMagic) + little_endian(WriteAheadLog::kVersion);
}

// The payload of the record at `at`, if one is there that checks.
std::optional<std::string_view> record_at(std::string_view bytes, size_t at) {
  if (bytes.size() - at < kFrameBytes) return std::nullopt;
  const size_t length = number_at(bytes, at);
  if (length == 0 || length > WriteAheadLog::kMaxRecordBytes ||
      length > bytes.size() - at - kFrameBytes) {
    return std::nullopt;
  }
  const std::string_view payload = bytes.substr(at + kFrameBytes, length);
  const uint32_t crc = crc32c(payload, crc32c(bytes.substr(at, 4)));
  if (crc != number_at(bytes, at + 4)) return std::nullopt;
  return payload;
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

bool sync_folder_of(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const int descriptor =
      ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool synced = ::fsync(descriptor) == 0;
  ::close(descriptor);
  return synced;
}

Error refusal(const fs::path& file, const std::string& what,
              const std::string& remedy) {
  return Error("log", file.string() + " " + what, remedy);
}

std::string all_of(const fs::path& file, int descriptor) {
  struct stat about {};
  if (::fstat(descriptor, &about) != 0) {
    throw refusal(file, std::string("cannot be read: ") + std::strerror(errno),
                  "name another file");
  }
  std::string bytes(static_cast<size_t>(about.st_size), '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t count =
        ::pread(descriptor, bytes.data() + have, bytes.size() - have,
                static_cast<off_t>(have));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    have += static_cast<size_t>(count);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

std::string framed_record(const std::string& payload) {
  const std::string length =
      little_endian(static_cast<uint32_t>(payload.size()));
  return length + little_endian(crc32c(payload, crc32c(length))) + payload;
}

std::unique_ptr<WriteAheadLog> WriteAheadLog::open(
    const fs::path& file, std::vector<std::string>* records) {
  const fs::path lock_file = file.string() + ".lock";
  const int lock =
      ::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) {
    throw refusal(lock_file,
                  std::string("cannot be opened: ") + std::strerror(errno),
                  "name a file in a folder that can be written");
  }
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    throw refusal(file, "belongs to a coordinator that is running",
                  "stop that one first, or name another log");
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
  const std::string bytes = all_of(file_, descriptor_);
  const bool is_begun = std::string_view(header()).starts_with(
      std::string_view(bytes).substr(0, kHeaderBytes));
  if (bytes.size() < kHeaderBytes && is_begun) {  // new, or torn at once
    torn_bytes_ = static_cast<int64_t>(bytes.size());
    replace({});
    return;
  }
  if (!bytes.starts_with(kMagic)) {
    throw refusal(file_, "is no log of a coordinator", "name another file");
  }
  if (const uint32_t version = number_at(bytes, kMagic.size());
      version != kVersion) {
    throw refusal(file_,
                  "is of version " + std::to_string(version) +
                      ", this program reads version " +
                      std::to_string(kVersion),
                  "start the build that wrote it, or name another file");
  }
  size_t at = kHeaderBytes;
  while (const auto payload = record_at(bytes, at)) {
    records->emplace_back(*payload);
    at += kFrameBytes + payload->size();
  }
  for (size_t behind = at + 1; behind < bytes.size(); ++behind) {
    if (!record_at(bytes, behind)) continue;
    throw refusal(file_,
                  "is damaged at byte " + std::to_string(at) +
                      ", and whole records follow at byte " +
                      std::to_string(behind),
                  "restore it from a copy, or name another file and resume "
                  "the run from its checkpoint");
  }
  torn_bytes_ = static_cast<int64_t>(bytes.size() - at);
  if (torn_bytes_ > 0 &&
      (::ftruncate(descriptor_, static_cast<off_t>(at)) != 0 ||
       ::fsync(descriptor_) != 0)) {
    fail("cutting its torn end");
  }
  bytes_ = static_cast<int64_t>(at);
}

void WriteAheadLog::append(const std::string& payload) {
  HEADROOM_CHECK(!payload.empty() && payload.size() <= kMaxRecordBytes,
                 std::to_string(payload.size()) + " bytes");
  const std::string record = framed_record(payload);
  if (!write_all(descriptor_, record)) fail("appending");
  bytes_ += static_cast<int64_t>(record.size());
}

void WriteAheadLog::sync() {
  if (::fdatasync(descriptor_) != 0) fail("syncing");
}

void WriteAheadLog::replace(const std::vector<std::string>& records) {
  std::string bytes = header();
  for (const std::string& record : records) bytes += framed_record(record);
  const fs::path next = file_.string() + ".next";
  const int descriptor = ::open(
      next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0600);
  if (descriptor < 0) fail("replacing");
  if (!write_all(descriptor, bytes) || ::fsync(descriptor) != 0 ||
      ::rename(next.c_str(), file_.c_str()) != 0 || !sync_folder_of(file_)) {
    const int why = errno;
    ::close(descriptor);
    ::unlink(next.c_str());
    errno = why;
    fail("replacing");
  }
  const int old = descriptor_.exchange(descriptor);
  if (old >= 0) ::close(old);
  bytes_ = static_cast<int64_t>(bytes.size());
}

void WriteAheadLog::clear() noexcept {
  if (::ftruncate(descriptor_, 0) == 0) bytes_ = 0;
}

void WriteAheadLog::fail(const std::string& doing) const {
  throw Error("log", doing + " " + file_.string() + ": " + std::strerror(errno),
              "free some space there, or name a log elsewhere",
              ExitCode::kResource);
}

}  // namespace headroom::coordinator
