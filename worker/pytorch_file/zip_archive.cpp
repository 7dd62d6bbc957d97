#include "worker/pytorch_file/zip_archive.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/base/binary_record.h"
#include "parallel/base/check.h"
#include "parallel/base/checksum.h"
#include "parallel/base/text.h"

namespace headroom::pytorch_file {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kEndRecord = 0x06054b50;
constexpr uint32_t kEndRecord64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr uint64_t kLocalHeaderBytes = 30;
constexpr uint64_t kDirectoryEntryBytes = 46;
constexpr uint64_t kEndRecordBytes = 22;
constexpr uint64_t kEndRecord64Bytes = 56;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint64_t kLongestComment = 0xffff;
constexpr uint16_t kExtra64 = 1;
constexpr uint32_t kSee64 = 0xffffffff;
constexpr uint16_t kSee64Short = 0xffff;
// A checkpoint's directory has a few thousand entries of about 100 bytes each.
constexpr uint64_t kLargestDirectory = 64 << 20;

// Why an entry's name is refused; "" if it stays inside the archive's folder.
std::string objection_to(const std::string& name) {
  if (name.empty()) return "is empty";
  if (name.front() == '/' || name.find(':') != std::string::npos) {
    return "is an absolute path";
  }
  if (name.find('\\') != std::string::npos) return "has a backslash";
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20) return "has a control character";
  }
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, end - begin) == "..") return "leads upwards";
    begin = end + 1;
  }
  return "";
}

std::string printable(const std::string& name) {
  std::string text;
  for (const char c : name.substr(0, 200)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  return text;
}

}  // namespace

void ZipArchive::refuse(const std::string& what) const {
  throw Error("weights", path_.string() + ": " + what,
              "give a checkpoint as torch.save wrote it, or a .safetensors "
              "file");
}

std::string ZipArchive::bytes_at(uint64_t offset, uint64_t count) {
  if (offset > file_bytes_ || count > file_bytes_ - offset) {
    refuse(cat("its directory points to byte ", offset, " + ", count,
               ", but it has ", file_bytes_));
  }
  std::string bytes(count, '\0');
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(offset));
  file_.read(bytes.data(), static_cast<std::streamsize>(count));
  if (!file_) refuse("it cannot be read");
  return bytes;
}

ZipArchive::ZipArchive(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  file_bytes_ = std::filesystem::file_size(path, error);
  file_.open(path, std::ios::binary);
  if (error || !file_) refuse("there is no such file, or it cannot be read");
  if (file_bytes_ < kEndRecordBytes) refuse("it is no zip archive");

  // Only a comment may follow the end record.
  const uint64_t tail_bytes =
      std::min(file_bytes_, kEndRecordBytes + kLongestComment);
  const uint64_t tail_offset = file_bytes_ - tail_bytes;
  const std::string tail = bytes_at(tail_offset, tail_bytes);
  size_t at = tail.size() - kEndRecordBytes;
  while (number_at<uint32_t>(tail, at) != kEndRecord ||
         at + kEndRecordBytes + number_at<uint16_t>(tail, at + 20) !=
             tail.size()) {
    if (at == 0) refuse("it is no zip archive, or its end is missing");
    --at;
  }
  uint64_t num_entries = number_at<uint16_t>(tail, at + 10);
  uint64_t bytes = number_at<uint32_t>(tail, at + 12);
  uint64_t offset = number_at<uint32_t>(tail, at + 16);
  const uint64_t end_offset = tail_offset + at;
  if (num_entries == kSee64Short || bytes == kSee64 || offset == kSee64) {
    if (end_offset < kLocator64Bytes) refuse("its 64-bit end is missing");
    const std::string locator =
        bytes_at(end_offset - kLocator64Bytes, kLocator64Bytes);
    if (number_at<uint32_t>(locator, 0) != kLocator64)
      refuse("its 64-bit end is missing");
    const std::string end =
        bytes_at(number_at<uint64_t>(locator, 8), kEndRecord64Bytes);
    if (number_at<uint32_t>(end, 0) != kEndRecord64)
      refuse("its 64-bit end is damaged");
    num_entries = number_at<uint64_t>(end, 32);
    bytes = number_at<uint64_t>(end, 40);
    offset = number_at<uint64_t>(end, 48);
  }
  read_directory(offset, bytes, num_entries);
  check_overlaps();
}

void ZipArchive::read_directory(uint64_t offset, uint64_t bytes,
                                uint64_t num_entries) {
  if (bytes > kLargestDirectory) {
    refuse(cat("its directory of ", bytes, " bytes is too large"));
  }
  const std::string directory = bytes_at(offset, bytes);
  size_t at = 0;
  for (uint64_t i = 0; i < num_entries; ++i) {
    if (directory.size() - at < kDirectoryEntryBytes ||
        number_at<uint32_t>(directory, at) != kDirectoryEntry) {
      refuse(cat("entry ", i, " of its directory is damaged"));
    }
    const uint16_t flags = number_at<uint16_t>(directory, at + 8);
    const uint16_t method = number_at<uint16_t>(directory, at + 10);
    Entry entry;
    entry.crc = number_at<uint32_t>(directory, at + 16);
    uint64_t stored = number_at<uint32_t>(directory, at + 20);
    entry.bytes = number_at<uint32_t>(directory, at + 24);
    const size_t name_bytes = number_at<uint16_t>(directory, at + 28);
    const size_t extra_bytes = number_at<uint16_t>(directory, at + 30);
    const size_t comment_bytes = number_at<uint16_t>(directory, at + 32);
    entry.header_offset = number_at<uint32_t>(directory, at + 42);
    at += kDirectoryEntryBytes;
    if (directory.size() - at < name_bytes + extra_bytes + comment_bytes) {
      refuse(cat("entry ", i, " of its directory is damaged"));
    }
    const std::string name = directory.substr(at, name_bytes);
    const std::string extra = directory.substr(at + name_bytes, extra_bytes);
    at += name_bytes + extra_bytes + comment_bytes;

    for (size_t e = 0; e + 4 <= extra.size();) {
      const uint16_t tag = number_at<uint16_t>(extra, e);
      const size_t length = number_at<uint16_t>(extra, e + 2);
      e += 4;
      if (length > extra.size() - e) break;  // padding, not a field
      if (tag == kExtra64) {
        size_t next = e;
        for (uint64_t* value : {&entry.bytes, &stored, &entry.header_offset}) {
          if (*value != kSee64) continue;
          if (next + 8 > e + length) refuse("a 64-bit field is missing");
          *value = number_at<uint64_t>(extra, next);
          next += 8;
        }
      }
      e += length;
    }
    const std::string quoted = "entry '" + printable(name) + "'";
    if (const std::string why = objection_to(name); !why.empty()) {
      refuse("the name of " + quoted + " " + why);
    }
    if ((flags & 1) != 0) refuse(quoted + " is encrypted");
    if (method != 0 || stored != entry.bytes) {
      refuse(quoted + " is compressed, which PyTorch's files never are");
    }
    if (entry.bytes > file_bytes_ || entry.header_offset > file_bytes_) {
      refuse(cat(quoted, " claims ", entry.bytes, " bytes, but the file has ",
                 file_bytes_));
    }
    if (!entries_.emplace(name, entry).second) {
      refuse(quoted + " is there twice");
    }
  }
}

// Refuses overlapping entries, with which an archive can seem to have more
// bytes than its file.
void ZipArchive::check_overlaps() const {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const auto& [name, entry] : entries_) {
    ranges.emplace_back(
        entry.header_offset,
        entry.header_offset + kLocalHeaderBytes + name.size() + entry.bytes);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      refuse("two of its entries share bytes");
    }
  }
}

const ZipArchive::Entry* ZipArchive::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

uint64_t ZipArchive::data_offset(const std::string& name, const Entry& entry) {
  const std::string header = bytes_at(entry.header_offset, kLocalHeaderBytes);
  if (number_at<uint32_t>(header, 0) != kLocalHeader) {
    refuse("there is no entry where the directory says '" + printable(name) +
           "' is");
  }
  return entry.header_offset + kLocalHeaderBytes +
         number_at<uint16_t>(header, 26) + number_at<uint16_t>(header, 28);
}

std::string ZipArchive::read(const std::string& name) {
  const Entry* entry = find(name);
  HEADROOM_CHECK(entry != nullptr, name);
  const std::string bytes = bytes_at(data_offset(name, *entry), entry->bytes);
  if (entry->crc != 0 && crc32(bytes) != entry->crc) {
    refuse("the checksum of entry '" + printable(name) + "' is wrong");
  }
  return bytes;
}

}  // namespace headroom::pytorch_file
