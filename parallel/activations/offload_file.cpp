#include "parallel/activations/offload_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "parallel/base/check.h"
#include "parallel/base/units.h"

namespace headroom::activations {
namespace {

std::string mebibytes(int64_t bytes) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  return std::to_string((bytes + kMebibyte - 1) / kMebibyte) + " MiB";
}

constexpr const char* kOtherwise =
    "or use --activations recompute, which needs no file";

}  // namespace

OffloadFile::OffloadFile(int64_t limit_bytes) : limit_(limit_bytes) {
  std::error_code error;
  directory_ = std::filesystem::temp_directory_path(error).string();
  std::string name = directory_ + "/headroom-offload-XXXXXX";
  if (!error) file_ = mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) {
    throw Error("offload",
                "no file can be made in " + directory_ + ": " +
                    (error ? error.message() : std::strerror(errno)),
                std::string("set TMPDIR to a folder that can be written, ") +
                    kOtherwise);
  }
  unlink(name.c_str());
}

OffloadFile::~OffloadFile() { close(file_); }

int64_t OffloadFile::find_place(int64_t bytes) {
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < bytes) continue;
    const auto [place, room] = *gap;
    gaps_.erase(gap);
    if (room > bytes) gaps_[place + bytes] = room - bytes;
    return place;
  }
  if (limit_ > 0 && size_ + bytes > limit_) {
    throw Error(
        "offload",
        "tensors of " + exact_bytes(size_ + bytes) +
            " are to be offloaded, but --host-memory-limit is " +
            exact_bytes(limit_),
        std::string("raise --host-memory-limit, lower --micro-batch, ") +
            kOtherwise);
  }
  const int64_t place = size_;
  size_ += bytes;
  return place;
}

int64_t OffloadFile::write(const void* data, int64_t bytes) {
  const int64_t place = find_place(bytes);
  used_ += bytes;
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t count =
        pwrite(file_, static_cast<const char*>(data) + done,
               static_cast<size_t>(bytes - done), place + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const std::string why = count < 0 ? std::strerror(errno) : "disk full";
      release(place, bytes);
      throw Error("offload",
                  "writing " + mebibytes(bytes) + " to a file in " +
                      directory_ + " that has " + mebibytes(place) +
                      " failed: " + why,
                  std::string("free space there, set TMPDIR to a folder with "
                              "more, ") +
                      kOtherwise);
    }
    done += count;
  }
  return place;
}

void OffloadFile::read(int64_t place, void* data, int64_t bytes) const {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t count =
        pread(file_, static_cast<char*>(data) + done,
              static_cast<size_t>(bytes - done), place + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw Error(
          "offload",
          "reading " + mebibytes(bytes) + " back from a file in " + directory_ +
              " failed: " +
              (count < 0 ? std::strerror(errno) : "it ends before"),
          std::string("set TMPDIR to a folder on another disk, ") + kOtherwise);
    }
    done += count;
  }
}

void OffloadFile::release(int64_t place, int64_t bytes) {
  used_ -= bytes;
  auto next = gaps_.upper_bound(place);
  if (next != gaps_.end() && next->first == place + bytes) {
    bytes += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == place) {
      before->second += bytes;
      return;
    }
  }
  gaps_[place] = bytes;
}

}  // namespace headroom::activations
