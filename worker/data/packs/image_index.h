// The layout of an index: properties of the images of a split, with which a run
// starts without opening millions of files.
//
// Two kinds of files have this layout:
//
//   a pack's index       has the position of each image in the archives;
//                        written once by `headroom pack` (pack_index.h)
//   an index of files    has a stamp of each image file and label file that was
//                        read, so that a later process opens only files that
//                        changed (labels/folder_index.h)
//
// A file consists of parts. A pack's index has one part. An index of files has
// many small parts, sorted by path, so that reading and writing it needs little
// memory; a part without images marks its end.
//
//   section  element                          how many
//   header   IndexHeader, 64 bytes            1
//   shards   PackedShard, 16 bytes            header.shards
//   images   IndexedImage, 80 bytes           header.images
//   names    the names' bytes                 header.name_bytes
//   by name  numbers of images, 4 bytes each, header.images; only in packs;
//            sorted by name
//   boxes    IndexedBox, 24 bytes             header.boxes
//   points   x and y of outlines, 8 bytes     header.points
//   files    SeenFiles, 80 bytes              header.images; not in packs
//   faults   bytes, image after image         sum of fault_bytes; not in packs
//   seal     IndexSeal, 24 bytes              1; not in packs
//
// Numbers are little-endian. The sections follow each other without gaps. An
// image's entry holds the positions of its name, boxes and points. In a pack it
// also holds a checksum of them, so that damage affects only the images whose
// bytes are damaged; in an index of files the seal covers the whole part.
//
// A file is read, not mapped: a mapped file that another machine replaces, or
// that fails for a moment, ends the process.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/data/packs/packed_file.h"

namespace headroom::packs {

struct PackedShard {
  uint64_t bytes = 0;
  uint64_t digest = 0;  // XXH3 of the whole shard
};

struct IndexedImage {
  // Position of the image's first byte in its shard; 0 if the image is a file
  // of its own.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t digest = 0;  // XXH3 of the image's bytes; only in packs
  // Positions in the sections at which the image's name, boxes and points
  // begin.
  uint64_t first_name_byte = 0, first_box = 0, first_point = 0;
  uint32_t name_bytes = 0, num_boxes = 0, num_points = 0;
  uint32_t shard = 0;
  int32_t height = 0, width = 0;  // size of the upright image
  // 1 if a model that reads colours can read it; 0 for a TIFF of bands.
  uint32_t has_colours = 1;
  uint32_t check = 0;  // check_of(); only in packs
};

struct IndexedBox {
  int32_t class_index = 0;
  float cx = 0, cy = 0, w = 0, h = 0;  // fractions of the image
  uint32_t num_points = 0;             // number of points of its outline
  bool operator==(const IndexedBox&) const = default;
};
using IndexedPoint = std::array<float, 2>;

struct ImageLabels {
  std::span<const IndexedBox> boxes;
  std::span<const IndexedPoint> points;
};

struct IndexedLabels {
  // REQUIRES: the image's entry is not damaged.
  ImageLabels of(const IndexedImage& image) const;

  std::vector<IndexedBox> boxes;
  std::vector<IndexedPoint> points;
};

// The properties that show whether a file has changed.
struct FileStamp {
  uint64_t bytes = 0;
  int64_t modified = 0;  // last change of content, in nanoseconds
  // Time of the last change of content, name, owner or permissions, in
  // nanoseconds; 0 if the file system does not keep it reliably.
  int64_t changed = 0;
  uint64_t inode = 0;

  bool operator==(const FileStamp&) const = default;
  // Whether length and modification time are equal. Programs that copy files
  // can make them equal for different content.
  bool looks_like(const FileStamp& other) const {
    return bytes == other.bytes && modified == other.modified;
  }
};

// An image's files as the process that wrote the index has read them.
struct SeenFiles {
  FileStamp image, labels;     // of the image and of its label file, if any
  int32_t largest_class = -1;  // largest class number in the label file
  uint32_t first_fault_byte = 0, fault_bytes = 0;
  // The remaining fields are 0 or 1. `believes_image`, `believes_labels`:
  // whether the stored size, or the stored boxes and faults, may be used while
  // the file's stamp is unchanged.
  uint8_t has_class_zero = 0, believes_image = 0, believes_labels = 0;
  uint8_t reserved = 0;
};

// Identifies the data set and classes for which an index of files is valid.
struct IndexSeal {
  uint64_t key = 0;    // hash for the data set; if it differs, no entry is used
  uint64_t rules = 0;  // hash of the classes; if it differs, labels are reread
  uint64_t digest = 0;  // hash of all sections before this field
  bool operator==(const IndexSeal&) const = default;
};

enum class IndexKind : uint32_t { kPack = 0, kFiles = 1 };

struct IndexPart {
  // Adds an image with its name and labels; sets the fields of `entry` that
  // hold their positions.
  void add(std::string_view name, IndexedImage entry, const ImageLabels& own);
  // Sets by_name if it is empty or not sorted.
  void order_names();
  // Returns "" if the entry is damaged and points beyond the end of the names.
  std::string_view name(size_t number) const;
  // REQUIRES: kind is kFiles.
  std::string_view faults_of(size_t number) const {
    const SeenFiles& own = files[number];
    return std::string_view(faults).substr(own.first_fault_byte,
                                           own.fault_bytes);
  }
  // Whether the entry's values are valid and its name, labels and faults are
  // inside this part.
  bool is_possible(size_t number) const;

  IndexKind kind = IndexKind::kPack;
  std::vector<PackedShard> shards;
  std::vector<IndexedImage> images;
  std::string names;
  std::vector<uint32_t> by_name;
  IndexedLabels labels;
  std::vector<SeenFiles> files;
  std::string faults;
  IndexSeal seal;
};

// The part's bytes in a file. Sets the digest of the seal.
std::string index_bytes(IndexPart& part);

// Reads an index part after part. Sizes in it are checked against the file's
// length before memory is allocated for them.
class IndexReader {
 public:
  IndexReader(const std::filesystem::path& file, IndexKind kind);

  // Returns the next part, or nullopt if it cannot be used: then fault() is the
  // reason.
  std::optional<IndexPart> next();

  // Why the file, or its next part, is not usable, for example "has a damaged
  // header".
  const std::string& fault() const { return fault_; }
  bool is_missing() const;
  // Whether the file is refused because another version wrote it.
  bool has_other_version() const { return has_other_version_; }
  // The number of bytes before the part that next() returned or refused.
  uint64_t begin() const { return begin_; }
  const OpenFile& file() const { return file_; }

 private:
  // Sets fault() and returns false.
  bool refuse(std::string fault);
  bool read(void* bytes, uint64_t num_bytes);
  template <typename Section>
  bool read_section(Section& section, uint64_t size);
  bool read_sections(IndexPart& part);

  const OpenFile file_;
  const IndexKind kind_;
  uint64_t length_ = 0, begin_ = 0, position_ = 0;
  uint64_t digest_ = 0;  // hash of the part's sections read so far
  std::string fault_;
  bool has_other_version_ = false;
};

}  // namespace headroom::packs
