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
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"

namespace headroom::activations {

// There is no room for what is to be offloaded: memory that ran out.
class OffloadError : public Error {
 public:
  OffloadError(std::string what_happened, std::string remedy)
      : Error("offload", std::move(what_happened), std::move(remedy)) {}
};

// Bytes of tensors in an unnamed temporary file: on a CPU, which has no second
// memory, this is how the offload policy is run and tested.
//
// The file lies in the temporary directory (TMPDIR) and has no name there: it
// is gone when it is closed, however the process ends. Released space is used
// again; the file never shrinks while it is open. Errors: OffloadError when the
// file cannot be made, when it would grow beyond its limit, when the disk is
// full.
class OffloadFile {
 public:
  // The file takes as much as the disk has if limit_bytes is 0.
  explicit OffloadFile(int64_t limit_bytes);
  ~OffloadFile();
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;

  // Copies these bytes into the file. Returns their place.
  int64_t write(const void* data, int64_t bytes);
  void read(int64_t place, void* data, int64_t bytes) const;
  void release(int64_t place, int64_t bytes);

  int64_t size() const { return size_; }  // the file's size
  int64_t used_bytes() const { return used_; }

 private:
  int64_t find_place(int64_t bytes);

  const int64_t limit_;
  std::string directory_;
  int file_ = -1;
  int64_t size_ = 0;
  int64_t used_ = 0;
  std::map<int64_t, int64_t> gaps_;  // place to bytes, never two in a row
};

class OffloadPolicy final : public SavedTensorPolicy {
 public:
  // limit_bytes as OffloadFile. The file is made when it is first needed.
  explicit OffloadPolicy(int64_t limit_bytes) : limit_(limit_bytes) {}

  std::function<at::Tensor()> pack(const at::Tensor& tensor) override;

  // The file, null before the first tensor.
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
