#include "worker/detect/detection_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "parallel/base/atomic_file.h"
#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/checksum.h"
#include "parallel/base/text.h"
#include "worker/data/codecs/image.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kMagic = "HEADRDET";
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 20, kFrameBytes = 8;
constexpr uint32_t kMostBytes = 1U << 30;
constexpr const char* kPrefix = "detect-";
constexpr const char* kSuffix = ".journal";

std::string json_of(const JournalSubject& subject) {
  const Json json = {{"weights", subject.weights},
                     {"sources", subject.sources},
                     {"options", subject.options},
                     {"command", subject.command}};
  // File names may be in any encoding.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string header_of(const JournalSubject& subject) {
  const std::string text = json_of(subject);
  return std::string(kMagic) + number_bytes(kVersion) +
         number_bytes(static_cast<uint32_t>(text.size())) +
         number_bytes(crc32c(text)) + text;
}

std::string payload_of(const JournalRecord& record) {
  RecordWriter writer;
  writer.value(record.kind);
  for (const int64_t value :
       {record.unit, record.number, record.height, record.width}) {
    writer.value(value);
  }
  writer.size(record.detections);
  for (const metrics::Detection& one : record.detections) writer.value(one);
  return writer.bytes();
}

// REQUIRES: what payload_of() gave.
JournalRecord record_of(std::string_view payload) {
  RecordReader reader(payload);
  JournalRecord record;
  reader.value(record.kind);
  for (int64_t* value :
       {&record.unit, &record.number, &record.height, &record.width}) {
    reader.value(*value);
  }
  reader.size(record.detections);
  for (metrics::Detection& one : record.detections) reader.value(one);
  return record;
}

// Fewer bytes only where the file ends.
std::string bytes_at(int descriptor, int64_t offset, size_t size) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t count =
        ::pread(descriptor, bytes.data() + have, size - have,
                static_cast<off_t>(offset + static_cast<int64_t>(have)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    have += static_cast<size_t>(count);
  }
  bytes.resize(have);
  return bytes;
}

// `size` bytes whose CRC, which goes on from `before`, is `crc`.
std::optional<std::string> checked_bytes(int descriptor, int64_t offset,
                                         uint32_t size, uint32_t before,
                                         uint32_t crc) {
  struct stat about {};
  if (size == 0 || size > kMostBytes || ::fstat(descriptor, &about) != 0 ||
      offset + size > about.st_size) {
    return std::nullopt;
  }
  std::string bytes = bytes_at(descriptor, offset, size);
  if (bytes.size() != size || crc32c(bytes, before) != crc) return std::nullopt;
  return bytes;
}

struct Header {
  std::string text;  // what the journal is about, as JSON
  uint32_t crc = 0;
  int64_t end = 0;
};
std::optional<Header> read_header(int descriptor) {
  const std::string head = bytes_at(descriptor, 0, kHeaderBytes);
  if (head.size() < kHeaderBytes || !head.starts_with(kMagic) ||
      number_at<uint32_t>(head, 8) != kVersion) {
    return std::nullopt;
  }
  const auto size = number_at<uint32_t>(head, 12);
  const auto crc = number_at<uint32_t>(head, 16);
  const auto text = checked_bytes(descriptor, kHeaderBytes, size, 0, crc);
  if (!text) return std::nullopt;
  return Header{*text, crc, static_cast<int64_t>(kHeaderBytes) + size};
}

std::optional<JournalSubject> read_subject(int descriptor) {
  const auto header = read_header(descriptor);
  if (!header) return std::nullopt;
  const Json json = Json::parse(header->text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  JournalSubject subject;
  subject.weights = json.value("weights", "");
  subject.sources = json.value("sources", "");
  subject.options = json.value("options", std::vector<std::string>());
  subject.command = json.value("command", "");
  return subject;
}

// Some file systems have no locks; there, nobody holds one.
bool is_held_elsewhere(int descriptor) {
  return !lock_soon(descriptor) && errno == EWOULDBLOCK;
}

// The words of `a` that `b` lacks.
std::vector<std::string> words_without(std::vector<std::string> a,
                                       const std::vector<std::string>& b) {
  std::erase_if(a, [&](const std::string& word) {
    return std::ranges::count(b, word) > 0;
  });
  return a;
}

std::string words_or_none(const std::vector<std::string>& words) {
  return words.empty() ? "nothing more" : joined(words, " ");
}

// A file that may lie in a pack, or be a page of one.
fs::path file_behind(const fs::path& image) {
  std::error_code ignored;
  fs::path file = codecs::image_page(image).file;
  while (!fs::exists(file, ignored) && file.has_relative_path()) {
    file = file.parent_path();
  }
  return file;
}

// exp, exp2, exp3 of exp.
bool is_numbered(const fs::path& folder, const std::string& base) {
  const std::string name = folder.filename().string();
  return name == base ||
         (name.starts_with(base) && parse_whole(name.substr(base.size()), 2));
}

void add_unfinished(const fs::path& folder, std::vector<UnfinishedRun>& runs) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const int descriptor = ::open(entry->path().c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) continue;
    const auto subject =
        is_held_elsewhere(descriptor) ? std::nullopt : read_subject(descriptor);
    ::close(descriptor);
    if (subject) runs.push_back({entry->path(), *subject});
  }
}

}  // namespace

std::string JournalSubject::file_name() const {
  std::vector<std::string> words = options;
  std::ranges::sort(words);
  words.insert(words.end(), {weights, sources});
  StreamDigest digest;
  for (const std::string& word : words)
    digest.add(word.c_str(), word.size() + 1);
  return kPrefix + digest.hex().substr(0, 16) + kSuffix;
}

std::string JournalSubject::difference_to(const JournalSubject& other) const {
  if (weights != other.weights) return "other weights";
  const auto here = words_without(options, other.options);
  const auto there = words_without(other.options, options);
  if (!here.empty() || !there.empty()) {
    return "other options: it was given " + words_or_none(there) +
           ", this command " + words_or_none(here);
  }
  return "other sources: a file came, went or was written since";
}

std::string sources_digest(const std::vector<fs::path>& files) {
  StreamDigest digest;
  fs::path newest;  // many images may lie in one pack
  std::string about;
  for (const fs::path& image : files) {
    const fs::path file = file_behind(image);
    if (file != newest) {
      struct stat status {};
      if (::stat(file.c_str(), &status) != 0) status = {};
      about.clear();
      for (const int64_t number :
           {int64_t{status.st_size}, int64_t{status.st_mtim.tv_sec},
            int64_t{status.st_mtim.tv_nsec}}) {
        append_number(about, number);
      }
      newest = file;
    }
    digest.add(image.c_str(), image.native().size() + 1);
    digest.add(about.data(), about.size());
  }
  return digest.hex();
}

std::unique_ptr<DetectionJournal> DetectionJournal::open(const fs::path& file,
                                                         const fs::path& now_at,
                                                         int flags) {
  std::unique_ptr<DetectionJournal> journal(new DetectionJournal(
      file, ::open(now_at.c_str(), O_RDWR | O_CLOEXEC | flags, 0644)));
  if (journal->descriptor_ < 0) journal->fail();
  if (is_held_elsewhere(journal->descriptor_)) {
    throw Error(
        "detect",
        "the same command writes into " + file.parent_path().string() + " now",
        "wait until it ends, or give another --name");
  }
  return journal;
}

std::unique_ptr<DetectionJournal> DetectionJournal::begin(
    const fs::path& folder, const JournalSubject& subject) {
  const fs::path file = folder / subject.file_name();
  std::error_code ignored;
  if (fs::exists(file, ignored)) open(file, file, 0);  // Is it in use?
  const fs::path partial = file.string() + kPartialSuffix;
  auto journal = open(file, partial, O_CREAT);
  const std::string header = header_of(subject);
  if (::ftruncate(journal->descriptor_, 0) != 0 ||
      ::pwrite(journal->descriptor_, header.data(), header.size(), 0) !=
          static_cast<ssize_t>(header.size()) ||
      std::rename(partial.c_str(), file.c_str()) != 0) {
    journal->fail();
  }
  journal->end_ = static_cast<int64_t>(header.size());
  journal->chain_ = number_at<uint32_t>(header, 16);
  return journal;
}

std::unique_ptr<DetectionJournal> DetectionJournal::go_on(
    const fs::path& file) {
  auto journal = open(file, file, 0);
  const auto header = read_header(journal->descriptor_);
  if (!header) journal->fail();
  journal->end_ = header->end;
  journal->chain_ = header->crc;
  journal->read_next();
  return journal;
}

DetectionJournal::~DetectionJournal() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void DetectionJournal::read_next() {
  next_.reset();
  const std::string frame = bytes_at(descriptor_, end_, kFrameBytes);
  if (frame.size() < kFrameBytes) return;
  const auto size = number_at<uint32_t>(frame, 0);
  next_chain_ = number_at<uint32_t>(frame, 4);
  const int64_t begin = end_ + static_cast<int64_t>(kFrameBytes);
  const auto payload =
      checked_bytes(descriptor_, begin, size, chain_, next_chain_);
  if (!payload) return;
  next_ = record_of(*payload);
  next_end_ = begin + size;
}

std::optional<JournalRecord> DetectionJournal::next(JournalRecord::Kind kind,
                                                    int64_t unit) {
  if (!next_ || next_->kind != kind || next_->unit != unit) return std::nullopt;
  std::optional<JournalRecord> given = std::move(next_);
  end_ = next_end_;
  chain_ = next_chain_;
  read_next();
  return given;
}

void DetectionJournal::append(const JournalRecord& record) {
  // What lies behind is torn, or not what this run does.
  if (next_ || end_ != ::lseek(descriptor_, 0, SEEK_END)) {
    next_.reset();
    if (::ftruncate(descriptor_, end_) != 0) fail();
  }
  const std::string payload = payload_of(record);
  const uint32_t crc = crc32c(payload, chain_);
  const std::string bytes =
      number_bytes(static_cast<uint32_t>(payload.size())) + number_bytes(crc) +
      payload;
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data() + written, bytes.size() - written,
                 end_ + static_cast<off_t>(written));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail();
    written += static_cast<size_t>(count);
  }
  end_ += static_cast<int64_t>(bytes.size());
  chain_ = crc;
}

void DetectionJournal::remove() {
  std::error_code ignored;
  fs::remove(file_, ignored);
}

void DetectionJournal::fail() const {
  throw Error(
      "detect",
      file_.string() + " cannot be written (" + std::strerror(errno) + ")",
      "free some space, or choose another place: --project DIR",
      ExitCode::kResource);
}

std::vector<UnfinishedRun> unfinished_runs(const fs::path& folder,
                                           bool only_there) {
  std::vector<UnfinishedRun> runs;
  if (only_there) add_unfinished(folder, runs);
  std::error_code error;
  for (fs::directory_iterator entry(folder.parent_path(), error), end;
       !only_there && !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (is_numbered(entry->path(), folder.filename().string()) &&
        entry->is_directory(ignored)) {
      add_unfinished(entry->path(), runs);
    }
  }
  std::ranges::stable_sort(runs,
                           [](const UnfinishedRun& a, const UnfinishedRun& b) {
                             std::error_code ignored;
                             return fs::last_write_time(a.journal, ignored) >
                                    fs::last_write_time(b.journal, ignored);
                           });
  return runs;
}

}  // namespace headroom::detect
