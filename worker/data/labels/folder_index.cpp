#include "worker/data/labels/folder_index.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/labels/file_list.h"
#include "worker/data/labels/index_cache.h"
#include "worker/data/packs/packed_file.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

constexpr std::array<char, 8> kMagic{'H', 'R', 'F', 'I', 'L', 'E', '\r', '\n'};
constexpr uint32_t kVersion = 1;
// Part of the key. Raise it when a change of the code makes a usable image be
// refused or have another size.
constexpr int kVerdicts = 2;
constexpr uint64_t kMostBlockBytes = uint64_t{16} << 20;
// A block ends when its texts and paths reach this size. A label file above
// kMostText is not stored and is read at each start.
constexpr uint64_t kBlockBytes = uint64_t{4} << 20;
constexpr size_t kMostText = size_t{1} << 20;

struct IndexHeader {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t key_bytes = 0;
  uint64_t digest = 0;  // XXH3 of the key
};
struct BlockHeader {
  uint64_t images = 0;
  uint64_t bytes = 0;   // bytes of the payload that follows
  uint64_t digest = 0;  // XXH3 of the payload, seeded with the key's digest
};
struct Entry {
  FileStamp image, labels;
  int32_t height = 0, width = 0;
  uint32_t path_bytes = 0, text_bytes = 0;
  uint32_t believes_image = 0, believes_labels = 0;
};
static_assert(sizeof(IndexHeader) == 24 && sizeof(BlockHeader) == 24 &&
              sizeof(FileStamp) == 32 && sizeof(Entry) == 88);

uint64_t digest_of(std::string_view key) {
  return XXH3_64bits(key.data(), key.size());
}

template <typename Part>
void append(std::string& bytes, const Part& part) {
  bytes.append(reinterpret_cast<const char*>(&part), sizeof part);
}

std::string header_bytes(const std::string& key) {
  IndexHeader header;
  header.key_bytes = static_cast<uint32_t>(key.size());
  header.digest = digest_of(key);
  std::string bytes;
  append(bytes, header);
  return bytes + key;
}

Entry entry_of(const KnownImage& image) {
  return {.image = image.image,
          .labels = image.labels,
          .height = image.size.height,
          .width = image.size.width,
          .path_bytes = static_cast<uint32_t>(image.path.size()),
          .text_bytes = static_cast<uint32_t>(image.label_text.size()),
          .believes_image = image.believes_image ? 1U : 0U,
          .believes_labels = image.believes_labels ? 1U : 0U};
}

// A block without images marks the end of an index.
std::string block_bytes(const std::vector<KnownImage>& images, uint64_t seed) {
  std::string payload;
  for (const KnownImage& image : images) append(payload, entry_of(image));
  for (const KnownImage& image : images) payload += image.path;
  for (const KnownImage& image : images) payload += image.label_text;
  const BlockHeader header = {
      images.size(), payload.size(),
      XXH3_64bits_withSeed(payload.data(), payload.size(), seed)};
  std::string bytes;
  append(bytes, header);
  return bytes + payload;
}

bool is_possible(const Entry& entry) {
  constexpr int32_t kMostSide = 1 << 28;
  const auto fits = [](int32_t side) { return side > 0 && side <= kMostSide; };
  return entry.believes_image == 0 || (fits(entry.height) && fits(entry.width));
}

// Decodes the images of a block. Returns an empty list if it is not valid.
std::vector<KnownImage> images_of(std::string_view payload, uint64_t count) {
  std::vector<Entry> entries(count);
  std::memcpy(entries.data(), payload.data(), count * sizeof(Entry));
  payload.remove_prefix(count * sizeof(Entry));
  uint64_t paths = 0, texts = 0;
  for (const Entry& entry : entries) {
    paths += entry.path_bytes;
    texts += entry.text_bytes;
    if (!is_possible(entry)) return {};
  }
  if (paths + texts != payload.size()) return {};
  std::string_view text = payload.substr(paths);
  std::vector<KnownImage> images;
  images.reserve(count);
  for (const Entry& entry : entries) {
    images.push_back(
        {.path = std::string(payload.substr(0, entry.path_bytes)),
         .image = entry.image,
         .labels = entry.labels,
         .size = {entry.height, entry.width},
         .label_text = std::string(text.substr(0, entry.text_bytes)),
         .believes_image = entry.believes_image != 0,
         .believes_labels = entry.believes_labels != 0});
    payload.remove_prefix(entry.path_bytes);
    text.remove_prefix(entry.text_bytes);
  }
  return images;
}

int64_t now() {
  return std::chrono::nanoseconds(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// Reads an index block after block.
class FolderIndex::Reader {
 public:
  Reader(const fs::path& path, const std::string& key)
      : file_(path), seed_(digest_of(key)) {
    if (file_.descriptor() < 0) {
      is_there_ = file_.error() != ENOENT && file_.error() != ENOTDIR;
      damage_ =
          std::string("cannot be read (") + std::strerror(file_.error()) + ")";
      return;
    }
    const std::string wanted = header_bytes(key);
    std::string header(wanted.size(), '\0');
    if (!read(header.data(), header.size()) || header != wanted) {
      damage_ = "is damaged, of another version or of another data set";
    }
  }

  // Returns the next block. It is empty at the end, and if the index is
  // damaged; then damage() says why.
  std::vector<KnownImage> next() {
    begin_ = position_;
    BlockHeader header;
    if (!read(&header, sizeof header)) return damaged("is cut off");
    if (header.images > kMostImages || header.bytes > kMostBlockBytes ||
        header.images * sizeof(Entry) > header.bytes) {
      return damaged("is damaged");
    }
    raw_.assign(reinterpret_cast<const char*>(&header), sizeof header);
    raw_.resize(sizeof header + header.bytes);
    char* const payload = raw_.data() + sizeof header;
    if (!read(payload, header.bytes)) return damaged("is cut off");
    if (XXH3_64bits_withSeed(payload, header.bytes, seed_) != header.digest) {
      return damaged("is damaged");
    }
    if (header.images == 0) {
      has_ended_ = true;
      return {};
    }
    std::vector<KnownImage> images =
        images_of({payload, header.bytes}, header.images);
    for (const KnownImage& image : images) {
      if (!path_precedes(last_, image.path)) return damaged("is out of order");
      last_ = image.path;
    }
    if (images.empty()) return damaged("is damaged");
    return images;
  }

  bool is_there() const { return is_there_; }
  bool has_ended() const { return has_ended_ || !damage_.empty(); }
  const std::string& damage() const { return damage_; }
  // The bytes of the newest block, header included.
  const std::string& raw() const { return raw_; }

  // Calls `write` with everything before the newest block, or before the place
  // that next() could not read. Returns false if it cannot be read again.
  template <typename Write>
  bool copy_before(const Write& write) {
    std::vector<char> bytes(size_t{1} << 20);
    for (uint64_t at = 0; at < begin_;) {
      const uint64_t count = std::min<uint64_t>(bytes.size(), begin_ - at);
      if (packs::read_at(file_.descriptor(), at, bytes.data(), count) != count)
        return false;
      write(bytes.data(), count);
      at += count;
    }
    return true;
  }

 private:
  std::vector<KnownImage> damaged(const char* how) {
    damage_ = std::string(how) + " after " +
              counted(static_cast<int64_t>(begin_), "byte");
    return {};
  }

  bool read(void* bytes, uint64_t num_bytes) {
    if (packs::read_at(file_.descriptor(), position_, bytes, num_bytes) !=
        num_bytes) {
      return false;
    }
    position_ += num_bytes;
    return true;
  }

  const packs::OpenFile file_;
  const uint64_t seed_;
  uint64_t position_ = 0, begin_ = 0;
  std::string raw_, last_, damage_;
  bool is_there_ = true, has_ended_ = false;
};

// Writes a new index beside the old one and replaces it on commit. Holds the
// lock while it exists.
class FolderIndex::Writer {
 public:
  // Throws Error if the folder cannot be written.
  explicit Writer(const Place& place)
      : place_(place), seed_(digest_of(place.key)) {
    std::error_code ignored;  // taking the lock below reports the reason
    const fs::path folder = place.file.parent_path();
    if (fs::create_directories(folder, ignored)) {
      fs::permissions(folder, fs::perms::owner_all, ignored);
    }
    lock_.emplace(place.file);
    if (lock_->error() != 0) {
      throw Error("data",
                  place.file.string() + ".lock cannot be taken (" +
                      std::strerror(lock_->error()) + ")",
                  "");
    }
    if (lock_->is_held()) file_.emplace(place.file);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // False if another process is writing the same index.
  bool has_lock() const { return file_.has_value(); }

  void write(const void* bytes, size_t num_bytes) {
    file_->write(bytes, num_bytes);
  }
  void write(std::string_view bytes) { write(bytes.data(), bytes.size()); }

  void add(const std::vector<KnownImage>& images) {
    std::vector<KnownImage> block;
    uint64_t bytes = 0;
    for (const KnownImage& image : images) {
      block.push_back(image);
      bytes += image.path.size() + image.label_text.size();
      if (block.size() < kMostImages && bytes < kBlockBytes) continue;
      write(block_bytes(block, seed_));
      block.clear();
      bytes = 0;
    }
    if (!block.empty()) write(block_bytes(block, seed_));
  }

  void commit() {
    write(block_bytes({}, seed_));
    file_->commit();
  }

 private:
  const Place& place_;
  const uint64_t seed_;
  std::optional<IndexLock> lock_;
  // Declared after lock_, so that an uncommitted file is removed while the lock
  // is still held.
  std::optional<AtomicFile> file_;
};

void FolderIndex::Difference::add(std::string_view path) {
  if (count++ == 0) first = path;
}

FolderIndex::FolderIndex(Place place, const std::vector<SplitImage>& images,
                         bool is_kept)
    : place_(std::move(place)),
      images_(images),
      begin_(now()),
      is_kept_(is_kept),
      may_write_(is_kept) {
  if (place_.file.empty()) return;
  reader_ = std::make_unique<Reader>(place_.file, place_.key);
  had_index_ = reader_->damage().empty();
  if (!had_index_ && reader_->is_there()) note_failure(reader_->damage());
}

FolderIndex::~FolderIndex() = default;

bool FolderIndex::is_settled(const FileStamp& stamp) const {
  return stamp.changed != 0 &&
         std::max(stamp.modified, stamp.changed) < begin_ - kYoung.count();
}

void FolderIndex::note_failure(const std::string& what) {
  notes_.push_back(place_.split + ": the index " + place_.file.string() + " " +
                   what + ": files that it lacks are read");
}

// Leaves block_ empty if the index has no more blocks.
void FolderIndex::load_block() {
  block_.clear();
  in_block_ = 0;
  if (reader_ == nullptr || reader_->has_ended()) return;
  block_ = reader_->next();
  if (!reader_->damage().empty()) note_failure(reader_->damage());
}

void FolderIndex::forget(const KnownImage& image) {
  removed_.add(image.path);
  covers_block_ = false;
  write({}, false);
}

const FolderIndex::Chunk& FolderIndex::next() {
  const size_t begin = chunk_.end;
  chunk_ = {begin, begin, {}};
  if (in_block_ == block_.size()) load_block();
  // Skip blocks whose images all precede the images that are left.
  while (!block_.empty() &&
         (begin == images_.size() ||
          path_precedes(block_.back().path, images_[begin].path))) {
    while (in_block_ < block_.size()) forget(block_[in_block_++]);
    load_block();
  }
  size_t end = std::min(begin + kMostImages, images_.size());
  bool reaches_last = false;  // whether the chunk ends where the block ends
  if (!block_.empty()) {
    const auto first = images_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto after = std::ranges::upper_bound(
        first, images_.begin() + static_cast<std::ptrdiff_t>(end),
        std::string_view(block_.back().path), path_precedes, &SplitImage::path);
    end = static_cast<size_t>(after - images_.begin());
    reaches_last = end == images_.size() ||
                   path_precedes(block_.back().path, images_[end].path);
  }
  covers_block_ = in_block_ == 0 && reaches_last;
  chunk_.end = end;
  chunk_.known.reserve(end - begin);
  for (size_t i = begin; i < end; ++i) {
    const std::string_view path = images_[i].path;
    while (in_block_ < block_.size() &&
           path_precedes(block_[in_block_].path, path)) {
      forget(block_[in_block_++]);
    }
    const bool is_known =
        in_block_ < block_.size() && block_[in_block_].path == path;
    chunk_.known.push_back(is_known ? &block_[in_block_++] : nullptr);
  }
  while (reaches_last && in_block_ < block_.size()) {
    forget(block_[in_block_++]);
  }
  return chunk_;
}

void FolderIndex::compare(const KnownImage* known, const KnownImage& found) {
  if (known == nullptr) return added_.add(found.path);
  const bool looks_changed = !known->image.looks_like(found.image) ||
                             !known->labels.looks_like(found.labels) ||
                             known->size != found.size ||
                             known->label_text != found.label_text;
  if (looks_changed) return changed_.add(found.path);
  if (known->image != found.image || known->labels != found.labels) {
    touched_.add(found.path);
  }
}

void FolderIndex::keep(std::vector<KnownImage> found) {
  if (place_.file.empty()) return;
  bool is_same = true;
  for (size_t i = 0; i < found.size(); ++i) {
    KnownImage& image = found[i];
    image.path = images_[chunk_.begin + i].path;
    image.believes_image = image.believes_image && is_settled(image.image);
    image.believes_labels = image.believes_labels && is_settled(image.labels) &&
                            image.label_text.size() <= kMostText;
    if (image.label_text.size() > kMostText) image.label_text.clear();
    if (image.image.bytes != 0 && image.image.changed == 0) {
      untimed_.add(image.path);
    }
    compare(chunk_.known[i], image);
    is_same =
        is_same && chunk_.known[i] != nullptr && *chunk_.known[i] == image;
  }
  write(found, is_same);
}

void FolderIndex::write(const std::vector<KnownImage>& found, bool is_same) {
  const bool has_block = covers_block_ && is_same;
  if (!may_write_ || (has_block && writer_ == nullptr)) {
    return;
  }
  if (!had_index_ && images_.size() < kLeastImages) return;
  try {
    if (writer_ == nullptr) {
      writer_ = std::make_unique<Writer>(place_);
      may_write_ = writer_->has_lock();
      if (!may_write_) return writer_.reset();
      const auto copy = [this](const char* bytes, uint64_t count) {
        writer_->write(bytes, count);
      };
      if (!had_index_) {
        writer_->write(header_bytes(place_.key));
      } else if (!reader_->copy_before(copy)) {
        throw Error("data", place_.file.string() + " cannot be read again", "");
      }
    }
    if (has_block) {
      writer_->write(reader_->raw());
    } else {
      writer_->add(found);
    }
  } catch (const Error& error) {
    may_write_ = false;
    writer_.reset();
    notes_.push_back(place_.split + ": no index is kept (" + error.text() +
                     "): the next start reads every file again");
  }
}

std::vector<std::string> FolderIndex::finish() {
  HEADROOM_CHECK(chunk_.end == images_.size(), "images without an answer");
  const bool is_damaged = had_index_ && !reader_->damage().empty();
  if (is_damaged && writer_ == nullptr) write({}, false);
  try {
    if (writer_ != nullptr) writer_->commit();
  } catch (const Error& error) {
    notes_.push_back(place_.split + ": no index is kept (" + error.text() +
                     "): the next start reads every file again");
  }
  const bool is_used = had_index_ || writer_ != nullptr;
  writer_.reset();
  if (is_used && is_kept_) remove_unused_beside(place_.file, kUnused);
  if (untimed_.count > 0) {
    notes_.push_back(
        place_.split + ": " + counted(untimed_.count, "image") + ", first " +
        untimed_.first +
        ", on a file system that keeps no times of changes: each start reads "
        "them again; packs (headroom pack) need not be");
  }
  if (!had_index_) return std::move(notes_);
  std::string text;
  const auto say = [&text](const Difference& difference, const char* what) {
    if (difference.count == 0) return;
    text += cat(text.empty() ? "" : "; ", difference.count, what, ", first ",
                difference.first);
  };
  say(changed_, " changed");
  say(added_, " new");
  say(removed_, " gone");
  say(touched_, " with another inode or status time, read again");
  if (!text.empty()) {
    notes_.push_back(place_.split + ": images since the last start: " + text);
  }
  return std::move(notes_);
}

FolderIndex::Place index_place(const fs::path& folder,
                               const configs::DataConfig& config, Split split,
                               const codecs::ImageLimits& limits) {
  FolderIndex::Place place;
  place.split = split_name(split);
  if (folder.empty()) return place;
  const auto add = [&place](const std::string& part) {
    place.key += part + '\0';
  };
  add(HEADROOM_VERSION);
  add(std::to_string(kVerdicts));
  add(place.split);
  for (const int64_t limit :
       {int64_t{limits.bands}, limits.max_pixels, limits.max_file_bytes,
        int64_t{limits.max_jpeg_scans}, int64_t{limits.takes_any_samples()}}) {
    add(std::to_string(limit));
  }
  add(fs::absolute(config.file).lexically_normal().string());
  add(split_images(config, split).string());
  for (const fs::path& source : split_sources(config, split)) {
    add(fs::absolute(source).lexically_normal().string());
  }
  StreamDigest digest;
  digest.add(place.key.data(), place.key.size());
  place.file = folder / digest.hex();
  return place;
}

}  // namespace headroom::labels
