// SharedImages: decoded images that the processes of a machine share, in memory
// of bounded size (parallel/machine/shared_file.h).
//
// The first images that are added stay for ever, as in ImageStore: samples come
// in random order, so replacing images would save nothing. So a reader uses an
// image in place, for as long as it likes, and nothing needs to be locked.
//
//   header   4096 bytes
//   table    8 bytes an image: where its pixels begin, 0 if they are not there
//   pixels   image after image, in the order in which they were added
//
// An image is added in three steps: take room behind the last one, write the
// pixels there, enter the place into the table. Only the last step, one atomic
// operation, makes the image visible. A process that is killed before that step
// blocks no other: the next process that has decoded the image adds it again,
// and only the room of the first try is lost. If two processes add an image at
// the same time, one of the two copies is entered; the room of the other one is
// given back if no process has taken room behind it, else it is lost.
//
// Threads: any. Errors: none; if memory runs out, no more images are added.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "parallel/machine/shared_file.h"

namespace headroom::loader {

class SharedImages {
 public:
  struct Content {
    // What the pixels and their room follow from, besides the sample.
    uint64_t key = 0;
    int64_t num_images = 0;  // samples are 0 to num_images - 1
  };

  // The images in the file `descriptor` (SharedFiles::images). The first
  // process that opens them makes room for `bytes` bytes of pixels. If the file
  // has other content that no process uses any more, it is replaced. Returns
  // nullptr, and sets `problem`, if memory cannot be shared, or the file has
  // other content that is in use.
  static std::shared_ptr<SharedImages> open(int descriptor,
                                            const Content& content,
                                            int64_t bytes,
                                            std::string& problem);

  // The pixels of a sample; nullptr if they are not there. They never change
  // and stay where they are as long as this object exists.
  const uint8_t* find(int64_t sample) const;
  // Adds the pixels of a sample. Does nothing if they are there already, or if
  // there is no room.
  void add(int64_t sample, std::span<const uint8_t> pixels);

  // Bytes for pixels, and how many of them are taken.
  int64_t room_bytes() const { return static_cast<int64_t>(end_ - begin_); }
  int64_t taken_bytes() const;

 private:
  struct Header;
  explicit SharedImages(std::unique_ptr<SharedFile> file)
      : file_(std::move(file)) {}
  // Returns why it failed, "" if it did not.
  std::string lay_out(const Content& content, int64_t bytes);
  std::string map(const Content& content);
  Header& header() const;
  std::atomic<uint64_t>& place(int64_t sample) const;
  uint64_t take_room(uint64_t bytes);  // 0 if there is none
  void give_back(uint64_t begin, uint64_t bytes);

  const std::unique_ptr<SharedFile> file_;
  uint64_t begin_ = 0, end_ = 0;      // of the room for pixels, in the file
  std::shared_ptr<std::byte> table_;  // header and table
  std::shared_ptr<const std::byte> pixels_;
  std::atomic<bool> is_out_of_memory_ = false;
};

}  // namespace headroom::loader
