// PytorchFile: a checkpoint of torch.save (.pt, .pth), as named tensors.
//
// Reads the files of PyTorch 1.6 and later: a zip archive of one pickle and one
// entry per storage. No code in them is executed (pickle.h). Checks that each
// tensor is inside its storage, and that the tensors together are not larger
// than the file.
//
// It uses no LibTorch: worker/weights/weights_file converts the tensors.
//
// Memory: the pickle and its values; storages are read one by one.
// Errors: Error that names the file and its fault.
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
    std::string storage;                  // the archive entry with the elements
  };

  explicit PytorchFile(const std::filesystem::path& path);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::string part() const { return part_; }  // "ema", "model" or ""
  // The name of the shipped model, "yolov5n"; "" if it is none of these.
  std::string model() const { return model_; }
  // What the file says that it holds, for people, if that is no detector of
  // YOLOv5: "YOLO11n (detection)". "" for a bare state dict.
  std::string network() const { return network_; }
  const std::vector<std::string>& class_names() const { return class_names_; }
  int64_t epoch() const { return epoch_; }  // -1 after the end of training

  // The raw little-endian elements of a storage.
  std::string read_storage(const std::string& entry) {
    return archive_.read(entry);
  }

 private:
  std::filesystem::path path_;
  ZipArchive archive_;
  std::vector<Tensor> tensors_;
  std::string part_, model_, network_;
  std::vector<std::string> class_names_;
  int64_t epoch_ = -1;
};

int64_t bytes_of(PytorchFile::Type type);

// Whether the file begins like a zip archive or like PyTorch's older format. A
// safetensors file whose first bytes are the same would have a header of 64
// MiB. Throws Error if the path exists and is not a regular file.
bool is_pytorch_file(const std::filesystem::path& path);

}  // namespace headroom::pytorch_file
