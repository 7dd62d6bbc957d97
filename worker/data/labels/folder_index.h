// FolderIndex: keeps the properties of a split's image files on disk for later
// processes. The next process that reads the data set asks the file system only
// for the dates of files, and opens only new and changed files.
//
// For each image, the index holds its size, and the boxes, outlines and faults
// of its label file. For both files, it holds a stamp: the length, the times of
// the last change of content and of status, and the inode. No program can set
// the time of the last status change, so a file with other content has another
// stamp even if its length and date are equal. If a stamp differs, the file is
// read; if the index itself is not valid, all files are read. So an index saves
// time and never changes the content of a data set. If a file system does not
// keep the time of the last status change, or accepts it from programs on the
// client, all files on it are read.
//
// A file that changed less than kYoung before it was read might change again
// within the same tick of the file system's clock. So its entry is not used by
// the next process. Entries of refused images, and of labels that training
// refuses, are not used either.
//
// The file has the same layout as other indexes (packs/image_index.h): it
// consists of parts, here called blocks, of at most kMostImages images, in the
// order of their paths.
//
// Use it from one thread at a time. Several processes may use the same index:
// the process that holds the lock (index_cache.h) writes a new file, which
// replaces the old one.
//
// Errors: nothing is thrown; finish() returns a note for each problem.
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
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/file_stamp.h"
#include "worker/data/labels/index_cache.h"
#include "worker/data/labels/label_reader.h"

namespace headroom::labels {

// The entry of an image in the index that an earlier process wrote.
struct KnownImage {
  const packs::IndexPart* part = nullptr;  // nullptr if the index has no entry
  size_t number = 0;                       // number of the image in the part

  // Whether the file is unchanged, so that size() or labels() is valid for it.
  bool has_size_of(const std::optional<FileStamp>& image) const;
  bool has_labels_of(const FileStamp& labels) const;
  codecs::ImageSize size() const;
  LabelFile labels(const ClassRules& classes, bool keep_outlines) const;
};

class FolderIndex {
 public:
  static constexpr std::chrono::nanoseconds kYoung = std::chrono::seconds(2);
  static constexpr size_t kMostImages = 4096;  // images in one block
  static constexpr std::chrono::hours kUnused{24 * 90};
  // With fewer images, examining them is faster than maintaining an index.
  static constexpr size_t kLeastImages = 256;

  struct Place {
    std::filesystem::path file;  // "" if no index is used
    std::string key;
    std::string split;  // for example "train"; used in notes
  };
  // `images`: the split's images, sorted by path; they must outlive this
  // object. If `is_kept` is false, nothing is written and keep() must not be
  // called.
  FolderIndex(Place place, const std::vector<SplitImage>& images,
              const ClassRules& classes, bool is_kept = true);
  ~FolderIndex();
  FolderIndex(const FolderIndex&) = delete;
  FolderIndex& operator=(const FolderIndex&) = delete;

  // Images [begin, end), and the index entry of each image.
  struct Chunk {
    size_t begin = 0, end = 0;
    std::vector<KnownImage> known;  // valid until next()
    size_t size() const { return end - begin; }
  };
  // Returns the images that follow the last chunk; returns an empty chunk at
  // the end.
  const Chunk& next();
  // Stores the properties of the next image of the chunk. Call it once for each
  // image, in order. `labels` are those of the image's own label file;
  // `are_known` is true if they were taken from the index. The index is
  // rewritten if any entry differs.
  void keep(packs::SeenFiles files, codecs::ImageSize size,
            const LabelFile& labels, bool are_known);

  // Writes the new index after the last chunk. Returns notes for the user:
  // which images changed, and problems with the index. Removes indexes that no
  // process has used for kUnused.
  std::vector<std::string> finish();

 private:
  // How many images differ in one way, for example are new, and the path of the
  // first of them.
  struct Difference {
    int64_t count = 0;
    std::string first;
    void add(std::string_view path);
  };

  // Whether the file last changed long enough ago for its stamp to be trusted.
  bool is_settled(const FileStamp& stamp) const;
  void load_block();
  void begin_block(packs::IndexPart block);
  void end_with_damage();
  void forget_next();
  void compare(const KnownImage& known);
  void write_part();
  void write(const std::string& bytes);
  // Returns false if no new index is written.
  bool begin_writing();
  void open_new_index();
  void give_up(const Error& error);
  void note_failure(const std::string& what);

  const Place place_;
  const std::vector<SplitImage>& images_;
  const uint64_t key_, rules_;  // see packs::IndexSeal
  const int64_t begin_;  // when this object was made, nanoseconds since 1970
  std::unique_ptr<packs::IndexReader> reader_;  // nullptr if Place::file is ""
  packs::IndexPart block_;                      // the last block read
  size_t in_block_ = 0;        // number of images of block_ already handled
  bool covers_block_ = false;  // whether chunk_ is exactly block_
  bool had_index_ = false, has_ended_ = false, is_damaged_ = false;
  const bool is_kept_;
  bool may_write_;
  std::optional<IndexLock> lock_;
  // The new index; set after the first difference from the old one. Declared
  // after lock_, so that an uncommitted file is removed while the lock is still
  // held.
  std::optional<AtomicFile> out_;
  packs::IndexPart part_;  // images passed to keep(), not written yet
  size_t kept_ = 0;        // number of images of the chunk passed to keep()
  Chunk chunk_;
  Difference changed_, touched_, added_, removed_, untimed_;
  std::vector<std::string> notes_;
};

// The file of a split's index in `folder`, and its key.
FolderIndex::Place index_place(const std::filesystem::path& folder,
                               const configs::DataConfig& config, Split split,
                               const codecs::ImageLimits& limits);

}  // namespace headroom::labels
