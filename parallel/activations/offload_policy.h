// OffloadPolicy: writes the tensors that autograd saves to a file, and reads
// them back when backward needs them.
//
// A tensor that several nodes save is written once. Some tensors are kept in
// memory: leaves (parameters, maps received from another stage), which exist
// anyway, and tensors below kTooSmallToMatter.
//
// Threads: as SavedTensorPolicy. Errors: as OffloadFile.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"

namespace headroom::activations {

// There is no room to offload a tensor. Handled like running out of memory.
class OffloadError : public Error {
 public:
  OffloadError(std::string what_happened, std::string remedy)
      : Error("offload", std::move(what_happened), std::move(remedy)) {}
};

// Stores tensors in an unnamed temporary file. CPU tensors are written too,
// because a CPU has no second memory to offload them to.
//
// The file is in the temporary directory (TMPDIR). It is unlinked at once, so
// it disappears when it is closed, however the process ends. Released space is
// used again, but the file never shrinks while it is open. Errors: OffloadError
// if the file cannot be created, would exceed its limit, or fills the disk.
class OffloadFile {
 public:
  // limit_bytes: largest size of the file; 0 means that only the disk limits
  // it.
  explicit OffloadFile(int64_t limit_bytes);
  ~OffloadFile();
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;

  // Copies `bytes` bytes into the file. Returns their position.
  int64_t write(const void* data, int64_t bytes);
  void read(int64_t place, void* data, int64_t bytes) const;
  void release(int64_t place, int64_t bytes);

  int64_t size() const { return size_; }
  int64_t used_bytes() const { return used_; }

 private:
  int64_t find_place(int64_t bytes);

  const int64_t limit_;
  std::string directory_;
  int file_ = -1;
  int64_t size_ = 0;
  int64_t used_ = 0;
  // Maps the position of each gap to its size; neighbouring gaps are merged.
  std::map<int64_t, int64_t> gaps_;
};

class OffloadPolicy final : public SavedTensorPolicy {
 public:
  // limit_bytes: see OffloadFile. The file is created when it is first needed.
  explicit OffloadPolicy(int64_t limit_bytes) : limit_(limit_bytes) {}

  std::function<at::Tensor()> pack(const at::Tensor& tensor) override;

  // Returns the file, or nullptr before the first tensor was written.
  const OffloadFile* file() const { return file_.get(); }

 private:
  class Copy;  // a tensor's copy in the file
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
