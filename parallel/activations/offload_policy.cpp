#include "parallel/activations/offload_policy.h"

#include <ATen/ops/empty_strided.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::activations {
namespace {

std::string mebibytes(int64_t bytes) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  return cat(divided_up(bytes, kMebibyte), " MiB");
}

constexpr const char* kOtherwise =
    "or use --activations recompute, which needs no file";

constexpr int64_t kTooSmallToMatter = 4096;  // bytes

at::Tensor empty_in_main_memory(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions(tensor.scalar_type()));
}

// The tensor itself if it is in host memory, else a copy there with the same
// strides. Gaps of the copy are uninitialised.
at::Tensor in_main_memory(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  at::Tensor host = empty_in_main_memory(tensor);
  host.copy_(tensor);
  return host;
}

}  // namespace

OffloadFile::OffloadFile(int64_t limit_bytes) : limit_(limit_bytes) {
  std::error_code error;
  directory_ = std::filesystem::temp_directory_path(error).string();
  std::string name = directory_ + "/headroom-offload-XXXXXX";
  if (!error) file_ = mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) {
    throw OffloadError(
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
    throw OffloadError(
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
      throw OffloadError(
          "writing " + mebibytes(bytes) + " to a file in " + directory_ +
              " that has " + mebibytes(place) + " failed: " + why,
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
      throw OffloadError(
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

class OffloadPolicy::Copy {
 public:
  Copy(const at::Tensor& tensor, std::shared_ptr<OffloadFile> file)
      : file_(std::move(file)),
        sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        offset_(tensor.storage_offset()),
        options_(tensor.options()),
        bytes_(static_cast<int64_t>(tensor.nbytes())),
        place_(file_->write(in_main_memory(tensor).const_data_ptr(), bytes_)) {}
  ~Copy() { file_->release(place_, bytes_); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  bool is_of(const at::Tensor& tensor) const {
    return tensor.sizes() == sizes_ && tensor.strides() == strides_ &&
           tensor.storage_offset() == offset_;
  }
  at::Tensor read() const {
    at::Tensor tensor = at::empty_strided(sizes_, strides_, options_);
    at::Tensor host = tensor.is_cpu() ? tensor : empty_in_main_memory(tensor);
    file_->read(place_, host.mutable_data_ptr(), bytes_);
    if (!tensor.is_cpu()) tensor.copy_(host);
    return tensor;
  }

 private:
  const std::shared_ptr<OffloadFile> file_;
  const std::vector<int64_t> sizes_, strides_;
  const int64_t offset_;
  const at::TensorOptions options_;
  const int64_t bytes_;
  const int64_t place_;
};

std::function<at::Tensor()> OffloadPolicy::pack(const at::Tensor& tensor) {
  // A parameter, or a map received from another stage, stays in memory anyway,
  // because its owner keeps it.
  const bool is_leaf = tensor.is_leaf() && tensor.requires_grad();
  const at::Tensor plain = tensor.detach();
  if (is_leaf || static_cast<int64_t>(tensor.nbytes()) < kTooSmallToMatter) {
    return [plain] { return plain; };
  }
  // A view with gaps is written without the gaps; a dense tensor is written in
  // its storage order.
  return [copy = copy_of(plain.is_non_overlapping_and_dense()
                             ? plain
                             : plain.clone())] { return copy->read(); };
}

std::shared_ptr<OffloadPolicy::Copy> OffloadPolicy::copy_of(
    const at::Tensor& tensor) {
  std::erase_if(known_, [](const auto& entry) {
    return entry.second.memory.expired() || entry.second.copy.expired();
  });
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  const auto known = known_.find(storage);
  if (known != known_.end()) {
    if (auto copy = known->second.copy.lock(); copy->is_of(tensor)) return copy;
  }
  if (file_ == nullptr) file_ = std::make_shared<OffloadFile>(limit_);
  auto copy = std::make_shared<Copy>(tensor, file_);
  known_.insert_or_assign(storage,
                          Known{tensor.storage().getWeakStorageImpl(), copy});
  return copy;
}

}  // namespace headroom::activations
