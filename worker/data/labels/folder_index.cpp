#include "worker/data/labels/folder_index.h"

#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/labels/file_list.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

// Part of the key. Raise it after a change of the code that refuses images
// which were accepted before, changes the size of an image, or changes how
// labels are read.
constexpr int kVerdicts = 4;
// A block that is being written ends when its data reaches this size.
constexpr uint64_t kBlockBytes = uint64_t{4} << 20;

uint64_t digest_of(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

uint64_t digest_of(const ClassRules& classes) {
  std::string text = classes.single_cls ? "one" : "";
  for (const std::string& name : classes.names) text += '\0' + name;
  return digest_of(text);
}

// This bit of a fault's first byte is set if the fault cost a box.
constexpr uint8_t kCostsBox = 0x80;

// Faults as bytes: the kind, then three texts, each preceded by its length.
std::string bytes_of(const std::vector<DataFault>& faults) {
  std::string bytes;
  for (const DataFault& fault : faults) {
    bytes += static_cast<char>(static_cast<uint8_t>(fault.kind) |
                               (fault.costs_box ? kCostsBox : 0));
    for (const std::string* text : {&fault.where, &fault.what, &fault.fix}) {
      const auto length = static_cast<uint32_t>(text->size());
      bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
      bytes += *text;
    }
  }
  return bytes;
}

std::vector<DataFault> faults_in(std::string_view bytes) {
  std::vector<DataFault> faults;
  while (!bytes.empty()) {
    DataFault& fault = faults.emplace_back();
    const auto kind = static_cast<uint8_t>(bytes[0]);
    fault.costs_box = (kind & kCostsBox) != 0;
    fault.kind = static_cast<DataFaultKind>(
        std::min<int>(kind & ~kCostsBox, kNumDataFaultKinds - 1));
    bytes.remove_prefix(1);
    for (std::string* text : {&fault.where, &fault.what, &fault.fix}) {
      uint32_t length = 0;
      std::memcpy(&length, bytes.data(), std::min(bytes.size(), sizeof length));
      bytes.remove_prefix(std::min(bytes.size(), sizeof length));
      *text = bytes.substr(0, length);
      bytes.remove_prefix(text->size());
    }
  }
  return faults;
}

packs::IndexedLabels indexed(const LabelFile& labels) {
  packs::IndexedLabels result;
  for (size_t i = 0; i < labels.boxes.size(); ++i) {
    const BoxLabel& box = labels.boxes[i];
    const Outline& outline = labels.outlines[i];
    result.boxes.push_back({box.class_index, box.cx, box.cy, box.w, box.h,
                            static_cast<uint32_t>(outline.size())});
    for (const OutlinePoint& point : outline) {
      result.points.push_back(
          {static_cast<float>(point.x), static_cast<float>(point.y)});
    }
  }
  return result;
}

int64_t now() {
  return std::chrono::nanoseconds(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

bool KnownImage::has_size_of(const std::optional<FileStamp>& image) const {
  return part != nullptr && part->files[number].believes_image != 0 &&
         image == part->files[number].image;
}

bool KnownImage::has_labels_of(const FileStamp& labels) const {
  return part != nullptr && part->files[number].believes_labels != 0 &&
         labels == part->files[number].labels;
}

codecs::ImageSize KnownImage::size() const {
  return {part->images[number].height, part->images[number].width};
}

LabelFile KnownImage::labels(const ClassRules& classes,
                             bool keep_outlines) const {
  LabelFile result =
      labels_of(part->labels.of(part->images[number]), classes, keep_outlines);
  result.faults = faults_in(part->faults_of(number));
  result.dropped =
      std::ranges::count(result.faults, true, &DataFault::costs_box);
  result.objects += result.dropped;
  result.largest_class = part->files[number].largest_class;
  result.has_class_zero = part->files[number].has_class_zero != 0;
  return result;
}

void FolderIndex::Difference::add(std::string_view path) {
  if (count++ == 0) first = path;
}

FolderIndex::FolderIndex(Place place, const std::vector<SplitImage>& images,
                         const ClassRules& classes, bool is_kept)
    : place_(std::move(place)),
      images_(images),
      key_(digest_of(place_.key)),
      rules_(digest_of(classes)),
      begin_(now()),
      is_kept_(is_kept),
      may_write_(is_kept) {
  if (place_.file.empty()) return;
  reader_ = std::make_unique<packs::IndexReader>(place_.file,
                                                 packs::IndexKind::kFiles);
  // Do not use an index of another user, who may be able to write to the folder
  // of indexes: labels are taken from the index. It is not replaced either.
  struct stat status {};
  if (::fstat(reader_->file().descriptor(), &status) == 0 &&
      status.st_uid != ::geteuid() && status.st_uid != 0) {
    has_ended_ = true;
    may_write_ = false;
    note_failure(cat("belongs to user ", status.st_uid));
    return;
  }
  std::optional<packs::IndexPart> first = reader_->next();
  had_index_ = first && first->seal.key == key_;
  has_ended_ = !had_index_;
  if (had_index_) {
    begin_block(std::move(*first));
  } else if (!reader_->is_missing()) {
    note_failure(reader_->file().descriptor() < 0
                     ? reader_->fault()
                     : "is damaged, of another version or of another data set");
  }
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

void FolderIndex::begin_block(packs::IndexPart block) {
  std::string_view last = block_.images.empty()
                              ? std::string_view()
                              : block_.name(block_.images.size() - 1);
  bool is_sound = block.seal.key == key_;
  for (size_t i = 0; i < block.images.size(); ++i) {
    is_sound = is_sound && path_precedes(last, block.name(i));
    last = block.name(i);
  }
  if (!is_sound) return end_with_damage();
  has_ended_ = block.images.empty();
  block_ = std::move(block);
  in_block_ = 0;
  if (block_.seal.rules == rules_) return;
  for (packs::SeenFiles& files : block_.files) files.believes_labels = 0;
}

void FolderIndex::end_with_damage() {
  has_ended_ = is_damaged_ = true;
  block_ = {};
  in_block_ = 0;
  note_failure(cat("is damaged or cut off after ",
                   counted(static_cast<int64_t>(reader_->begin()), "byte")));
}

// Leaves block_ empty if the index has no more blocks.
void FolderIndex::load_block() {
  if (has_ended_ || reader_ == nullptr) {
    block_ = {};
    in_block_ = 0;
    return;
  }
  std::optional<packs::IndexPart> block = reader_->next();
  if (!block) return end_with_damage();
  begin_block(std::move(*block));
}

void FolderIndex::forget_next() {
  removed_.add(block_.name(in_block_++));
  begin_writing();
}

const FolderIndex::Chunk& FolderIndex::next() {
  chunk_.begin = chunk_.end;
  chunk_.known.clear();
  kept_ = 0;
  do {
    if (in_block_ == block_.images.size()) load_block();
    const size_t begin = in_block_;
    const size_t end = block_.images.size();
    const auto first_left = [&] { return block_.name(in_block_); };
    while (chunk_.end < images_.size() && chunk_.size() < kMostImages) {
      const std::string_view path = images_[chunk_.end].path;
      while (in_block_ < end && path_precedes(first_left(), path)) {
        forget_next();
      }
      // The next block of the index may contain this image.
      if (in_block_ == end && end > 0) break;
      const bool is_known = in_block_ < end && first_left() == path;
      chunk_.known.push_back(is_known ? KnownImage{&block_, in_block_++}
                                      : KnownImage());
      ++chunk_.end;
    }
    if (chunk_.end == images_.size()) {
      while (in_block_ < end) forget_next();
    }
    covers_block_ = begin == 0 && in_block_ == end && chunk_.size() == end &&
                    std::ranges::all_of(chunk_.known, [](const auto& known) {
                      return known.part != nullptr;
                    });
  } while (chunk_.size() == 0 && !block_.images.empty());
  return chunk_;
}

void FolderIndex::compare(const KnownImage& known) {
  const size_t at = part_.images.size() - 1;
  const std::string_view path = part_.name(at);
  if (known.part == nullptr) return added_.add(path);
  const packs::IndexPart& old = *known.part;
  const packs::SeenFiles& before = old.files[known.number];
  const packs::SeenFiles& after = part_.files[at];
  const auto same_labels = [&] {
    const auto was = old.labels.of(old.images[known.number]);
    const auto is = part_.labels.of(part_.images[at]);
    return std::ranges::equal(was.boxes, is.boxes) &&
           std::ranges::equal(was.points, is.points) &&
           old.faults_of(known.number) == part_.faults_of(at);
  };
  if (!before.image.looks_like(after.image) ||
      !before.labels.looks_like(after.labels) ||
      old.images[known.number].height != part_.images[at].height ||
      old.images[known.number].width != part_.images[at].width ||
      (old.seal.rules == rules_ && !same_labels())) {
    return changed_.add(path);
  }
  if (before.image != after.image || before.labels != after.labels) {
    touched_.add(path);
  }
}

void FolderIndex::keep(packs::SeenFiles files, codecs::ImageSize size,
                       const LabelFile& labels, bool are_known) {
  const size_t at = kept_++;
  if (place_.file.empty()) return;
  const std::string_view path = images_[chunk_.begin + at].path;
  const KnownImage& known = chunk_.known[at];
  packs::IndexedImage entry;
  entry.bytes = files.image.bytes;
  entry.height = size.height;
  entry.width = size.width;
  packs::IndexedLabels found;
  packs::ImageLabels own;
  std::string faults;
  if (are_known) {
    own = known.part->labels.of(known.part->images[known.number]);
    faults = known.part->faults_of(known.number);
  } else if (files.believes_labels != 0) {
    found = indexed(labels);
    own = {found.boxes, found.points};
    faults = bytes_of(labels.faults);
  }
  files.largest_class = static_cast<int32_t>(labels.largest_class);
  files.has_class_zero = labels.has_class_zero;
  files.first_fault_byte = static_cast<uint32_t>(part_.faults.size());
  files.fault_bytes = static_cast<uint32_t>(faults.size());
  files.believes_image = files.believes_image != 0 && is_settled(files.image);
  files.believes_labels =
      files.believes_labels != 0 && is_settled(files.labels);
  part_.add(path, entry, own);
  part_.files.push_back(files);
  part_.faults += faults;
  if (files.image.bytes != 0 && files.image.changed == 0) untimed_.add(path);
  compare(known);
  const uint64_t bytes =
      part_.names.size() + part_.faults.size() +
      part_.labels.boxes.size() * sizeof(packs::IndexedBox) +
      part_.labels.points.size() * sizeof(packs::IndexedPoint);
  if (kept_ == chunk_.size() || bytes >= kBlockBytes) write_part();
}

void FolderIndex::write_part() {
  const bool is_whole_chunk = part_.images.size() == chunk_.size();
  part_.kind = packs::IndexKind::kFiles;
  part_.seal = {key_, rules_, 0};
  const std::string bytes = index_bytes(part_);
  const bool is_same =
      is_whole_chunk && covers_block_ && part_.seal == block_.seal;
  part_ = {};
  if (is_same && !out_) return;
  write(bytes);
}

void FolderIndex::write(const std::string& bytes) {
  if (!begin_writing()) return;
  try {
    out_->write(bytes.data(), bytes.size());
  } catch (const Error& error) {
    give_up(error);
  }
}

bool FolderIndex::begin_writing() {
  if (out_) return true;
  if (!may_write_ || (!had_index_ && images_.size() < kLeastImages)) {
    return false;
  }
  try {
    open_new_index();
  } catch (const Error& error) {
    give_up(error);
  }
  may_write_ = out_.has_value();
  return may_write_;
}

// Leaves out_ empty if another process is writing the index.
void FolderIndex::open_new_index() {
  std::error_code ignored;  // taking the lock below reports the reason
  const fs::path folder = place_.file.parent_path();
  if (fs::create_directories(folder, ignored)) {
    fs::permissions(folder, fs::perms::owner_all, ignored);
  }
  lock_.emplace(place_.file);
  if (lock_->error() != 0) {
    throw Error("data",
                place_.file.string() + ".lock cannot be taken (" +
                    std::strerror(lock_->error()) + ")",
                "");
  }
  if (!lock_->is_held()) return lock_.reset();
  out_.emplace(place_.file);
  // Copy the blocks before the block that was read last: they are unchanged.
  std::vector<char> bytes(size_t{1} << 20);
  const uint64_t end = had_index_ ? reader_->begin() : 0;
  for (uint64_t at = 0; at < end;) {
    const uint64_t count = std::min<uint64_t>(bytes.size(), end - at);
    if (packs::read_at(reader_->file().descriptor(), at, bytes.data(), count) !=
        count) {
      throw Error("data", place_.file.string() + " cannot be read again", "");
    }
    out_->write(bytes.data(), count);
    at += count;
  }
}

void FolderIndex::give_up(const Error& error) {
  may_write_ = false;
  out_.reset();
  lock_.reset();
  notes_.push_back(place_.split + ": no index is kept (" + error.text() +
                   "): the next start reads every file again");
}

std::vector<std::string> FolderIndex::finish() {
  HEADROOM_CHECK(chunk_.end == images_.size(), "images without an answer");
  if (is_damaged_) begin_writing();
  const bool is_written = out_.has_value();
  if (is_written) {
    part_ = {};
    chunk_ = {chunk_.end, chunk_.end, {}};
    covers_block_ = false;
    write_part();  // a part without images marks the end
  }
  if (out_) {
    try {
      out_->commit();
    } catch (const Error& error) {
      give_up(error);
    }
  }
  out_.reset();
  lock_.reset();
  if ((had_index_ || is_written) && is_kept_) {
    remove_unused_beside(place_.file, kUnused);
  }
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
