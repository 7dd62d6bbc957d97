#include "parallel/activations/offload_policy.h"

#include <ATen/ops/empty_strided.h>

#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::activations {
namespace {

constexpr int64_t kTooSmallToMatter = 4096;  // bytes

at::Tensor empty_in_main_memory(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions(tensor.scalar_type()));
}

// With the same strides, whose gaps, if any, hold nothing.
at::Tensor in_main_memory(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  at::Tensor host = empty_in_main_memory(tensor);
  host.copy_(tensor);
  return host;
}

}  // namespace

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
  // A parameter, or a map received from another stage, which its owner keeps.
  const bool is_leaf = tensor.is_leaf() && tensor.requires_grad();
  const at::Tensor plain = tensor.detach();
  if (is_leaf || static_cast<int64_t>(tensor.nbytes()) < kTooSmallToMatter) {
    return [plain] { return plain; };
  }
  // A window with gaps is written without them; a map keeps its order.
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
