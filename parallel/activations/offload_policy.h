// OffloadPolicy: what autograd saves goes to a file and comes back when
// backward needs it.
//
// A tensor that several nodes save is written once. Leaves (parameters,
// maps received from another stage), which stay where they are anyway, and
// tensors too small to matter are kept.
//
// Threads: as SavedTensorPolicy. Errors: as OffloadFile.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "parallel/activations/offload_file.h"
#include "parallel/activations/saved_tensor_policy.h"

namespace headroom::activations {

class OffloadPolicy final : public SavedTensorPolicy {
 public:
  // limit_bytes as OffloadFile. The file is made when it is first needed.
  explicit OffloadPolicy(int64_t limit_bytes) : limit_(limit_bytes) {}

  std::function<at::Tensor()> pack(const at::Tensor& tensor) override;

  // Null before the first tensor.
  const OffloadFile* file() const { return file_.get(); }

 private:
  class Copy;  // of a tensor, in the file
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;
    std::weak_ptr<Copy> copy;
  };
  std::shared_ptr<Copy> copy_of(const at::Tensor& tensor);

  const int64_t limit_;
  std::shared_ptr<OffloadFile> file_;  // copies may outlive the policy
  std::unordered_map<const c10::StorageImpl*, Known> known_;
};

}  // namespace headroom::activations
