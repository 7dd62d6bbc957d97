// FolderIndex: remembers facts about the image files of a split between starts.
// The next start then asks the file system only for the dates of files, and
// opens only new and changed ones.
//
// An entry holds an image's size and the text of its label file. For both files
// it holds a stamp: the length, the times of the last change of content and of
// status, and the inode. No program can set the time of the last status change,
// so a file with other content has another stamp even if its length and date
// are equal. If a stamp differs, the file is read; if the index itself is not
// valid, all files are read. So an index saves time and never changes the
// content of a data set. File systems that do not keep that time, or accept it
// from programs on the client, are not trusted: all their files are read.
//
// A file that changed less than kYoung before it was read might change again
// within the same tick of the file system's clock. Its entry is not trusted.
// Entries of refused images are not trusted either.
//
//   part      element                       how many
//   header    kMagic, version, a digest,    1
//             the length of the key
//   key       which data set, split and     1
//             limits: all must be equal
//   blocks    BlockHeader; its images'      at most kMostImages images each,
//             entries, paths and texts      by rising path
//   end       BlockHeader without images    1
//
// One thread at a time. Several processes may use the same index: the one that
// holds the lock beside it writes a new file, which replaces the old one.
//
// Errors: none are thrown; finish() returns a note for each problem.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/data_config.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/file_stamp.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::labels {

// Facts about an image and its labels as found by one start.
struct KnownImage {
  std::string path;
  FileStamp image, labels;
  codecs::ImageSize size;  // upright; 0 if the image is refused
  std::string label_text;
  bool believes_image = false;
  bool believes_labels = false;

  bool operator==(const KnownImage&) const = default;
};

class FolderIndex {
 public:
  static constexpr std::chrono::nanoseconds kYoung = std::chrono::seconds(2);
  static constexpr size_t kMostImages = 4096;  // images in one block
  static constexpr std::chrono::hours kUnused{24 * 90};
  // With fewer images, examining them is faster than maintaining an index.
  static constexpr size_t kLeastImages = 256;

  struct Place {
    std::filesystem::path file;  // "" if nothing is known or kept
    std::string key;
    std::string split;  // "train"; used in notes
  };
  // `images`: the split's images, sorted by path; they must outlive this
  // object. If `is_kept` is false, nothing is written and keep() must not be
  // called.
  FolderIndex(Place place, const std::vector<SplitImage>& images,
              bool is_kept = true);
  ~FolderIndex();
  FolderIndex(const FolderIndex&) = delete;
  FolderIndex& operator=(const FolderIndex&) = delete;

  // Images [begin, end), with the known facts of each or nullptr.
  struct Chunk {
    size_t begin = 0, end = 0;
    std::vector<const KnownImage*> known;  // valid until next()
    size_t size() const { return end - begin; }
  };
  // Returns the images that follow the last chunk; an empty chunk at the end.
  const Chunk& next();
  // Stores the facts found about the images of the chunk, one entry each. The
  // index is rewritten if something differs.
  void keep(std::vector<KnownImage> found);

  // Writes the new index after the last chunk. Returns notes for people: which
  // images changed, and problems with the index. Removes indexes that no start
  // has used for kUnused.
  std::vector<std::string> finish();

 private:
  class Reader;
  class Writer;
  // The number of images that differ in one way, and the path of the first.
  struct Difference {
    int64_t count = 0;
    std::string first;
    void add(std::string_view path);
  };

  // Whether the file last changed long enough ago for its stamp to be trusted.
  bool is_settled(const FileStamp& stamp) const;
  void load_block();
  void forget(const KnownImage& image);
  void compare(const KnownImage* known, const KnownImage& found);
  void write(const std::vector<KnownImage>& found, bool is_same);
  void note_failure(const std::string& what);

  const Place place_;
  const std::vector<SplitImage>& images_;
  const int64_t begin_;             // start of the scan, nanoseconds since 1970
  std::unique_ptr<Reader> reader_;  // nullptr if no index is in use
  std::unique_ptr<Writer> writer_;  // nullptr while nothing differs
  std::vector<KnownImage> block_;   // the newest block read
  size_t in_block_ = 0;             // number of its images already handled
  bool covers_block_ = false;       // whether the chunk covers the whole block
  bool had_index_ = false;
  const bool is_kept_;
  bool may_write_;
  Chunk chunk_;
  Difference changed_, touched_, added_, removed_, untimed_;
  std::vector<std::string> notes_;
};

// The file of a split's index in that folder, and its key.
FolderIndex::Place index_place(const std::filesystem::path& folder,
                               const configs::DataConfig& config, Split split,
                               const codecs::ImageLimits& limits);

}  // namespace headroom::labels
