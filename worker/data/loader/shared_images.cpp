#include "worker/data/loader/shared_images.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::loader {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAlignment = 64;

uint64_t rounded_up(uint64_t bytes, uint64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

uint64_t begin_of_pixels(int64_t num_images) {
  return rounded_up(
      kPage + sizeof(uint64_t) * static_cast<uint64_t>(num_images), kPage);
}

std::string with_reason(const std::string& what) {
  return cat(what, " (", std::strerror(errno), ")");
}

}  // namespace

struct SharedImages::Header {
  uint64_t key = 0;
  int64_t num_images = 0;
  uint64_t room = 0;          // bytes for pixels
  std::atomic<uint64_t> end;  // of the room that is taken
};

SharedImages::Header& SharedImages::header() const {
  return *std::launder(reinterpret_cast<Header*>(table_.get()));
}

std::atomic<uint64_t>& SharedImages::place(int64_t sample) const {
  return std::launder(
      reinterpret_cast<std::atomic<uint64_t>*>(table_.get() + kPage))[sample];
}

std::shared_ptr<SharedImages> SharedImages::open(int descriptor,
                                                 const Content& content,
                                                 int64_t bytes,
                                                 std::string& problem) {
  static_assert(sizeof(Header) <= kPage &&
                std::atomic<uint64_t>::is_always_lock_free &&
                sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
  std::unique_ptr<SharedFile> file = SharedFile::open(descriptor);
  if (file == nullptr) {
    problem = with_reason("the memory that the workers share cannot be opened");
    return nullptr;
  }
  std::shared_ptr<SharedImages> images(new SharedImages(std::move(file)));
  const SharedFile::Lock lock(*images->file_);
  if (!images->file_->begin_use()) {
    problem = with_reason("the use of shared memory cannot be registered");
  } else if (!images->file_->is_sealed()) {
    problem = images->lay_out(content, bytes);
  } else if (!images->map(content).empty() &&
             !images->file_->has_other_users()) {
    problem = images->lay_out(content, bytes);
  }
  if (problem.empty()) problem = images->map(content);
  return problem.empty() ? images : nullptr;
}

std::string SharedImages::lay_out(const Content& content, int64_t bytes) {
  const uint64_t begin = begin_of_pixels(content.num_images);
  const bool is_new = !file_->is_sealed();
  // A process may have been killed in this function, so begin with zeros.
  bool has_room = is_new
                      ? file_->resize(0) &&
                            file_->resize(begin + static_cast<uint64_t>(bytes))
                      : file_->size() >= begin && file_->clear();
  has_room = has_room && file_->allocate(begin);
  Header header{content.key,
                content.num_images,
                std::min(static_cast<uint64_t>(bytes), file_->size() - begin),
                {}};
  header.end.store(begin);
  if (has_room && file_->write(0, &header, sizeof header) &&
      (!is_new || file_->seal())) {
    return "";
  }
  std::string reason = with_reason(
      cat("memory for ", format_bytes(bytes), " of images cannot be had"));
  if (is_new) file_->resize(0);
  return reason;
}

std::string SharedImages::map(const Content& content) {
  const uint64_t file_bytes = file_->size();
  begin_ = begin_of_pixels(content.num_images);
  constexpr const char* kOther = "the shared memory has other images";
  if (file_bytes < begin_) return kOther;
  table_ = file_->map(0, begin_, /*is_writable=*/true);
  if (table_ != nullptr && (header().key != content.key ||
                            header().num_images != content.num_images ||
                            header().room > file_bytes - begin_)) {
    return kOther;
  }
  if (table_ != nullptr) end_ = begin_ + header().room;
  if (table_ != nullptr && end_ > begin_) {
    pixels_ = file_->map(begin_, end_ - begin_);
  }
  return table_ != nullptr && (pixels_ != nullptr || end_ == begin_)
             ? ""
             : with_reason(cat(format_bytes(static_cast<int64_t>(file_bytes)),
                               " of shared images cannot be mapped"));
}

const uint8_t* SharedImages::find(int64_t sample) const {
  const uint64_t at = place(sample).load(std::memory_order_acquire);
  return at == 0
             ? nullptr
             : reinterpret_cast<const uint8_t*>(pixels_.get()) + (at - begin_);
}

void SharedImages::add(int64_t sample, std::span<const uint8_t> pixels) {
  if (is_out_of_memory_ || place(sample).load() != 0) return;
  const uint64_t bytes = rounded_up(pixels.size(), kAlignment);
  const uint64_t begin = take_room(bytes);
  if (begin == 0) return;
  if (!file_->write(begin, pixels.data(), pixels.size())) {
    is_out_of_memory_ = true;
    return give_back(begin, bytes);
  }
  uint64_t none = 0;
  if (!place(sample).compare_exchange_strong(none, begin)) {
    give_back(begin, bytes);
  }
}

int64_t SharedImages::taken_bytes() const {
  return static_cast<int64_t>(header().end.load() - begin_);
}

uint64_t SharedImages::take_room(uint64_t bytes) {
  std::atomic<uint64_t>& end = header().end;
  uint64_t begin = end.load();
  do {
    if (bytes > end_ - begin) return 0;
  } while (!end.compare_exchange_weak(begin, begin + bytes));
  return begin;
}

void SharedImages::give_back(uint64_t begin, uint64_t bytes) {
  uint64_t end = begin + bytes;
  header().end.compare_exchange_strong(end, begin);
}

}  // namespace headroom::loader
