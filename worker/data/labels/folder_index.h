// FolderIndex: what an earlier start found out about the image files of a
// split, so that the next one asks the file system for dates alone and opens
// only what is new or changed.
//
// An entry holds an image's size and its label file's text, and for both files
// the length, the times of the last change of content and of status, and the
// inode. No program can set the time of the last change of status: a file with
// another content has another stamp even where its length and date are the
// same. Where a stamp differs, the file is read; where the index cannot be
// believed, everything is. So an index saves time, and never changes what a
// data set is. File systems that keep no such time, or take it from the
// client's programs, are not believed: all their files are read.
//
// A file that changed less than kYoung before it was read may change once more
// within one tick of the file system's clock: its entry is not believed, and
// neither is that of an image which was refused.
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
// One thread at a time. Several processes may use one index: who holds the lock
// beside it writes, by a new file that takes the place of the old one.
//
// Errors: none; notes() says in a line each what went wrong.
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

// An image and its labels as one start found them.
struct KnownImage {
  std::string path;
  FileStamp image, labels;
  codecs::ImageSize size;  // upright; of an image that is refused, 0
  std::string label_text;
  bool believes_image = false;
  bool believes_labels = false;

  bool operator==(const KnownImage&) const = default;
};

class FolderIndex {
 public:
  static constexpr std::chrono::nanoseconds kYoung = std::chrono::seconds(2);
  static constexpr size_t kMostImages = 4096;  // a block's
  static constexpr std::chrono::hours kUnused{24 * 90};
  // Fewer images are looked at in less time than an index is worth.
  static constexpr size_t kLeastImages = 256;

  struct Place {
    std::filesystem::path file;  // "": nothing is known, nothing kept
    std::string key;
    std::string split;  // "train", for notes
  };
  // `images`: the split's, by rising path; they outlive this.
  // Without `is_kept` nothing is written, and keep() is not called.
  FolderIndex(Place place, const std::vector<SplitImage>& images,
              bool is_kept = true);
  ~FolderIndex();
  FolderIndex(const FolderIndex&) = delete;
  FolderIndex& operator=(const FolderIndex&) = delete;

  // Images [begin, end) and what is known of each; null: nothing.
  struct Chunk {
    size_t begin = 0, end = 0;
    std::vector<const KnownImage*> known;  // valid until next()
    size_t size() const { return end - begin; }
  };
  // The images after those of the last chunk; an empty one at the end.
  const Chunk& next();
  // Takes what was found out about the images of the chunk, one each, so that
  // the index is written again where something differs.
  void keep(std::vector<KnownImage> found);

  // Writes what is new, after the last chunk, and returns what people should
  // know: which images changed, and what is wrong with the index. Indexes that
  // no start has used for kUnused are removed.
  std::vector<std::string> finish();

 private:
  class Reader;
  class Writer;
  // How many images differ in one way, and the first one's path.
  struct Difference {
    int64_t count = 0;
    std::string first;
    void add(std::string_view path);
  };

  // Was a file left alone long enough to be believed?
  bool is_settled(const FileStamp& stamp) const;
  void load_block();
  void forget(const KnownImage& image);
  void compare(const KnownImage* known, const KnownImage& found);
  void write(const std::vector<KnownImage>& found, bool is_same);
  void note_failure(const std::string& what);

  const Place place_;
  const std::vector<SplitImage>& images_;
  const int64_t begin_;             // the scan's, nanoseconds since 1970
  std::unique_ptr<Reader> reader_;  // null: nothing more is known
  std::unique_ptr<Writer> writer_;  // null: nothing differs so far
  std::vector<KnownImage> block_;   // the newest that was read
  size_t in_block_ = 0;             // its images that chunks went past
  bool covers_block_ = false;       // is the chunk all of the block?
  bool had_index_ = false;
  const bool is_kept_;
  bool may_write_;
  Chunk chunk_;
  Difference changed_, touched_, added_, removed_, untimed_;
  std::vector<std::string> notes_;
};

// Where the index of a split lies in that folder, and its key.
FolderIndex::Place index_place(const std::filesystem::path& folder,
                               const configs::DataConfig& config, Split split,
                               const codecs::ImageLimits& limits);

}  // namespace headroom::labels
