// PytorchFile: a checkpoint of torch.save (.pt, .pth), as named tensors.
//
// Reads the files of PyTorch 1.6 and later: a zip archive of one pickle and one
// entry per storage. Nothing in them is executed (pickle.h). Each tensor is
// checked to lie within its storage, and all of them together to be no more
// than the file holds.
//
// No LibTorch here: worker/weights/weights_file makes tensors of it.
//
// Memory: the pickle and its values; storages as they are asked for.
// Errors: Error naming the file and what is wrong with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/pytorch_file/zip_archive.h"

namespace headroom::pytorch_file {

class PytorchFile {
 public:
  enum class Type {
    kHalf,
    kBfloat16,
    kFloat,
    kDouble,
    kByte,
    kChar,
    kShort,
    kInt,
    kLong,
    kBool
  };
  struct Tensor {
    std::string name;
    Type type = Type::kFloat;
    std::vector<int64_t> sizes, strides;  // counted in elements
    int64_t offset = 0;                   // counted in elements of its storage
    std::string storage;                  // an entry of the archive
  };

  explicit PytorchFile(const std::filesystem::path& path);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::string part() const { return part_; }  // "ema" or "model", or ""
  std::string model() const { return model_; }
  const std::vector<std::string>& class_names() const { return class_names_; }
  int64_t epoch() const { return epoch_; }  // -1: training was over

  // The raw little-endian elements of a storage.
  std::string read_storage(const std::string& entry) {
    return archive_.read(entry);
  }

 private:
  std::filesystem::path path_;
  ZipArchive archive_;
  std::vector<Tensor> tensors_;
  std::string part_, model_;
  std::vector<std::string> class_names_;
  int64_t epoch_ = -1;
};

int64_t bytes_of(PytorchFile::Type type);

// Does the file begin as a zip archive or as PyTorch's older format does? A
// safetensors file that did would have a header of 64 MiB. Throws Error for
// what is there and is no regular file.
bool is_pytorch_file(const std::filesystem::path& path);

}  // namespace headroom::pytorch_file
