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
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "worker/data/codecs/image.h"

namespace headroom::detect {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kMagic = "HEADRDET";
constexpr uint32_t kVersion = 2;
constexpr size_t kHeaderBytes = 20, kFrameBytes = 8;
// The time between two syncs to disk. A power failure loses the findings of at
// most this time.
constexpr std::chrono::seconds kSyncInterval(5);
constexpr uint32_t kMostBytes = 1U << 30;
// The length of a payload without detections.
constexpr size_t kPayloadBytes = 1 + 6 * 8;

std::string json_of(const JournalSubject& subject) {
  const Json json = {
      {"weights", subject.weights}, {"sources", subject.sources},
      {"options", subject.options}, {"command", subject.command},
      {"version", subject.version}, {"digest", subject.digest()}};
  // File names may have any encoding.
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
  for (const int64_t value : {record.unit, record.number, record.height,
                              record.width, record.place}) {
    writer.value(value);
  }
  writer.size(record.detections);
  for (const metrics::Detection& one : record.detections) writer.value(one);
  return writer.bytes();
}

// Returns nullopt if the payload was not made by payload_of().
std::optional<JournalRecord> record_of(std::string_view payload) {
  constexpr size_t kEach = sizeof(metrics::Detection);
  if (payload.size() < kPayloadBytes) return std::nullopt;
  const size_t boxes = payload.size() - kPayloadBytes;
  if (boxes % kEach != 0 ||
      number_at<uint64_t>(payload, kPayloadBytes - 8) != boxes / kEach) {
    return std::nullopt;
  }
  RecordReader reader(payload);
  uint8_t kind = 0;
  reader.value(kind);
  if (kind > static_cast<uint8_t>(JournalRecord::Kind::kLeftOut)) {
    return std::nullopt;
  }
  JournalRecord record;
  record.kind = static_cast<JournalRecord::Kind>(kind);
  for (int64_t* value : {&record.unit, &record.number, &record.height,
                         &record.width, &record.place}) {
    reader.value(*value);
    if (*value < 0) return std::nullopt;
  }
  reader.size(record.detections);
  for (metrics::Detection& one : record.detections) reader.value(one);
  return record;
}

// An open journal; its name is for messages.
struct OpenFile {
  int descriptor = -1;
  const fs::path& name;
};

// Returns fewer bytes only at the end of the file. Throws Error if reading
// fails: findings that cannot be read now must not be cut off.
std::string bytes_at(const OpenFile& file, int64_t offset, size_t size) {
  std::string bytes(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t count =
        ::pread(file.descriptor, bytes.data() + have, size - have,
                static_cast<off_t>(offset + static_cast<int64_t>(have)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      throw Error(
          "detect",
          file.name.string() + " cannot be read (" + std::strerror(errno) + ")",
          "check its disk: the findings in it are kept", ExitCode::kResource);
    }
    if (count == 0) break;
    have += static_cast<size_t>(count);
  }
  bytes.resize(have);
  return bytes;
}

// Reads `size` bytes; nullopt if their CRC, continued from `before`, is not
// `crc`.
std::optional<std::string> checked_bytes(const OpenFile& file, int64_t offset,
                                         uint32_t size, uint32_t before,
                                         uint32_t crc) {
  struct stat about {};
  if (size == 0 || size > kMostBytes || ::fstat(file.descriptor, &about) != 0 ||
      offset + size > about.st_size) {
    return std::nullopt;
  }
  std::string bytes = bytes_at(file, offset, size);
  if (bytes.size() != size || crc32c(bytes, before) != crc) return std::nullopt;
  return bytes;
}

struct Header {
  std::string text;  // the subject, as JSON
  uint32_t crc = 0;
  int64_t end = 0;
};
std::optional<Header> read_header(const OpenFile& file) {
  const std::string head = bytes_at(file, 0, kHeaderBytes);
  if (head.size() < kHeaderBytes || !head.starts_with(kMagic) ||
      number_at<uint32_t>(head, 8) != kVersion) {
    return std::nullopt;
  }
  const auto size = number_at<uint32_t>(head, 12);
  const auto crc = number_at<uint32_t>(head, 16);
  const auto text = checked_bytes(file, kHeaderBytes, size, 0, crc);
  if (!text) return std::nullopt;
  return Header{*text, crc, static_cast<int64_t>(kHeaderBytes) + size};
}

// Returns false if the member is missing or not a string.
bool take_text(const Json& json, const char* name, std::string& text) {
  const auto at = json.find(name);
  if (at == json.end() || !at->is_string()) return false;
  text = at->get<std::string>();
  return true;
}

// Returns false if the header cannot be read.
bool read_subject(const OpenFile& file, UnfinishedRun& run) {
  const auto header = read_header(file);
  if (!header) return false;
  const Json json = Json::parse(header->text, nullptr, false);
  JournalSubject& subject = run.subject;
  if (!json.is_object() || !take_text(json, "weights", subject.weights) ||
      !take_text(json, "sources", subject.sources) ||
      !take_text(json, "command", subject.command) ||
      !take_text(json, "version", subject.version) ||
      !take_text(json, "digest", run.digest)) {
    return false;
  }
  const auto options = json.find("options");
  if (options == json.end() || !options->is_array()) return false;
  for (const Json& option : *options) {
    if (!option.is_string()) return false;
    subject.options.push_back(option.get<std::string>());
  }
  return true;
}

// Always returns false on a file system without locks.
bool is_held_elsewhere(int descriptor) {
  return !lock_soon(descriptor) && errno == EWOULDBLOCK;
}

// The words of `a` that are not in `b`.
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

// The file that contains the image, which may be in a pack or a page of a file.
fs::path file_behind(const fs::path& image) {
  std::error_code ignored;
  fs::path file = codecs::image_page(image).file;
  while (!fs::exists(file, ignored) && file.has_relative_path()) {
    file = file.parent_path();
  }
  return file;
}

// Whether the folder's name is `base`, or `base` with a number: exp, exp2.
bool is_numbered(const fs::path& folder, const std::string& base) {
  const std::string name = folder.filename().string();
  return name == base ||
         (name.starts_with(base) && parse_whole(name.substr(base.size()), 2));
}

void add_unfinished(const fs::path& folder, std::vector<UnfinishedRun>& runs) {
  UnfinishedRun run{
      .journal = folder / kJournalName, .digest = {}, .subject = {}};
  const int descriptor =
      ::open(run.journal.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return;
  const bool is_held = is_held_elsewhere(descriptor);
  if (is_held) run.state = UnfinishedRun::State::kHeld;
  bool is_read = false;
  try {
    is_read = read_subject({descriptor, run.journal}, run);
  } catch (const Error&) {  // the journal is left aside
  }
  if (!is_read) {
    // Another process holds the lock and may still be writing the header.
    if (!is_held) run.state = UnfinishedRun::State::kDamaged;
    run.digest.clear();
    run.subject = {};
  }
  if (is_at(descriptor, run.journal)) runs.push_back(std::move(run));
  ::close(descriptor);
}

}  // namespace

std::string journal_version() { return HEADROOM_VERSION; }

std::string JournalSubject::digest() const {
  std::vector<std::string> words = options;
  std::ranges::sort(words);
  words.insert(words.end(), {weights, sources, version});
  StreamDigest digest;
  for (const std::string& word : words)
    digest.add(word.c_str(), word.size() + 1);
  return digest.hex();
}

std::string JournalSubject::difference_to(const JournalSubject& other) const {
  if (version != other.version) return "headroom " + other.version;
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
  fs::path newest;  // file of the previous image; a pack has many
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

bool has_boxes_in(const JournalRecord& record, const tiles::TileRect& where,
                  int64_t classes) {
  const auto left = static_cast<float>(where.x - 1);
  const auto top = static_cast<float>(where.y - 1);
  const auto right = static_cast<float>(where.x + where.width + 1);
  const auto bottom = static_cast<float>(where.y + where.height + 1);
  // NaN fails these comparisons.
  return std::ranges::all_of(
      record.detections, [&](const metrics::Detection& one) {
        return one.box.x1 >= left && one.box.x2 <= right && one.box.y1 >= top &&
               one.box.y2 <= bottom && one.box.x1 <= one.box.x2 &&
               one.box.y1 <= one.box.y2 && one.confidence >= 0 &&
               one.confidence <= 1 && one.class_index >= 0 &&
               one.class_index < classes;
      });
}

std::unique_ptr<DetectionJournal> DetectionJournal::open(const fs::path& file,
                                                         int flags) {
  std::unique_ptr<DetectionJournal> journal(new DetectionJournal(
      file,
      ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0644)));
  if (journal->descriptor_ < 0) {
    if (errno == ENOENT && (flags & O_CREAT) == 0) return nullptr;
    journal->fail();
  }
  if (is_held_elsewhere(journal->descriptor_)) {
    throw Error(
        "detect",
        "another command writes into " + file.parent_path().string() + " now",
        "wait until it ends, or give another --name");
  }
  if (!is_at(journal->descriptor_, file)) return nullptr;
  return journal;
}

std::unique_ptr<DetectionJournal> DetectionJournal::begin(
    const fs::path& folder, const JournalSubject& subject) {
  std::unique_ptr<DetectionJournal> journal;
  // Another command may remove the file before it is locked: try again, but not
  // for ever.
  constexpr int kTries = 100;
  const fs::path file = folder / kJournalName;
  for (int i = 0; !journal && i < kTries; ++i) journal = open(file, O_CREAT);
  if (!journal) {
    throw Error(
        "detect",
        file.string() + " is removed or replaced as often as it is made",
        "give another --name", ExitCode::kResource);
  }
  if (::ftruncate(journal->descriptor_, 0) != 0) journal->fail();
  const std::string header = header_of(subject);
  journal->write(header);
  journal->chain_ = number_at<uint32_t>(header, 16);
  journal->sync();
  if (!sync_folder(folder)) journal->fail();
  return journal;
}

std::unique_ptr<DetectionJournal> DetectionJournal::go_on(
    const fs::path& file, const std::string& digest) {
  auto journal = open(file, 0);
  if (!journal) return nullptr;
  UnfinishedRun now{.journal = file, .digest = {}, .subject = {}};
  const OpenFile opened{journal->descriptor_, file};
  if (!read_subject(opened, now) || now.digest != digest) return nullptr;
  const auto header = read_header(opened);
  journal->end_ = header->end;
  journal->chain_ = header->crc;
  journal->read_next();
  return journal;
}

DetectionJournal::~DetectionJournal() {
  if (descriptor_ < 0) return;
  // If this fails, the records are still valid.
  if (!is_synced_) ::fdatasync(descriptor_);
  ::close(descriptor_);
}

void DetectionJournal::read_next() {
  next_.reset();
  const OpenFile opened{descriptor_, file_};
  const std::string frame = bytes_at(opened, end_, kFrameBytes);
  if (frame.size() < kFrameBytes) return;
  const auto size = number_at<uint32_t>(frame, 0);
  next_chain_ = number_at<uint32_t>(frame, 4);
  const int64_t begin = end_ + static_cast<int64_t>(kFrameBytes);
  const auto payload = checked_bytes(opened, begin, size, chain_, next_chain_);
  if (!payload) return;
  next_ = record_of(*payload);
  next_end_ = begin + size;
}

std::optional<JournalRecord> DetectionJournal::next(JournalRecord::Kind kind,
                                                    int64_t unit,
                                                    const Check& check) {
  if (!next_ || next_->kind != kind || next_->unit != unit) return std::nullopt;
  if (check && !check(*next_)) {
    next_.reset();
    return std::nullopt;
  }
  std::optional<JournalRecord> given = std::move(next_);
  end_ = next_end_;
  chain_ = next_chain_;
  read_next();
  return given;
}

void DetectionJournal::append(const JournalRecord& record) {
  // Remove what follows the last valid record: an incomplete record, or records
  // that do not belong to this run.
  if (next_ || end_ != ::lseek(descriptor_, 0, SEEK_END)) {
    next_.reset();
    if (::ftruncate(descriptor_, end_) != 0) fail();
  }
  const std::string payload = payload_of(record);
  const uint32_t crc = crc32c(payload, chain_);
  write(number_bytes(static_cast<uint32_t>(payload.size())) +
        number_bytes(crc) + payload);
  chain_ = crc;
  if (std::chrono::steady_clock::now() - synced_at_ >= kSyncInterval) sync();
}

void DetectionJournal::write(const std::string& bytes) {
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
  is_synced_ = false;
}

void DetectionJournal::sync() {
  while (::fdatasync(descriptor_) != 0) {
    // these errors mean that the file system has no sync
    if (errno == EINVAL || errno == ENOTSUP) break;
    if (errno != EINTR) fail();
  }
  synced_at_ = std::chrono::steady_clock::now();
  is_synced_ = true;
}

void DetectionJournal::remove() {
  is_synced_ = true;  // a removed file needs no sync
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
  if (only_there) {
    add_unfinished(folder, runs);
  } else {
    std::error_code error;
    for (const fs::path& entry : entries_of(folder.parent_path(), error)) {
      std::error_code ignored;
      if (is_numbered(entry, folder.filename().string()) &&
          fs::is_directory(entry, ignored)) {
        add_unfinished(entry, runs);
      }
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
