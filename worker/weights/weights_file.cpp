#include "worker/weights/weights_file.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "parallel/base/check.h"
#include "worker/pytorch_file/pytorch_file.h"

namespace headroom::weights {
namespace {

using Type = pytorch_file::PytorchFile::Type;

at::ScalarType scalar_type_of(Type type) {
  switch (type) {
    case Type::kHalf:
      return at::kHalf;
    case Type::kBfloat16:
      return at::kBFloat16;
    case Type::kFloat:
      return at::kFloat;
    case Type::kDouble:
      return at::kDouble;
    case Type::kByte:
      return at::kByte;
    case Type::kChar:
      return at::kChar;
    case Type::kShort:
      return at::kShort;
    case Type::kInt:
      return at::kInt;
    case Type::kLong:
      return at::kLong;
    case Type::kBool:  // a file may hold other values than zero and one
      return at::kByte;
  }
  return at::kFloat;
}

at::Tensor make_tensor(const pytorch_file::PytorchFile::Tensor& tensor,
                       const std::string& bytes) {
  const int64_t count =
      static_cast<int64_t>(bytes.size()) / pytorch_file::bytes_of(tensor.type);
  const at::Tensor storage =
      at::empty({count}, at::TensorOptions(scalar_type_of(tensor.type)));
  std::memcpy(storage.mutable_data_ptr(), bytes.data(),
              static_cast<size_t>(count * pytorch_file::bytes_of(tensor.type)));
  const at::Tensor view =
      at::as_strided(storage, tensor.sizes, tensor.strides, tensor.offset);
  return view.clone(at::MemoryFormat::Contiguous);
}

std::map<std::string, std::string> metadata_of(
    const pytorch_file::PytorchFile& file) {
  std::map<std::string, std::string> metadata = {
      {"format", "pytorch"}, {"epoch", std::to_string(file.epoch())}};
  if (!file.model().empty()) metadata["model"] = file.model();
  if (!file.class_names().empty()) {
    metadata["names"] =
        nlohmann::json(file.class_names())
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return metadata;
}

}  // namespace

Safetensors read_weights_file(const std::filesystem::path& path) {
  if (!pytorch_file::is_pytorch_file(path)) return read_safetensors(path);
  pytorch_file::PytorchFile file(path);
  Safetensors result;
  for (const pytorch_file::PytorchFile::Tensor& tensor : file.tensors()) {
    // YOLOv5 6.0 and older hold the anchors a second time.
    if (tensor.name.ends_with(".anchor_grid")) continue;
    result.tensors.emplace(
        tensor.name, make_tensor(tensor, file.read_storage(tensor.storage)));
  }
  result.metadata = metadata_of(file);
  return result;
}

std::map<std::string, std::string> read_weights_metadata(
    const std::filesystem::path& path) {
  if (!pytorch_file::is_pytorch_file(path))
    return read_safetensors_header(path).metadata;
  return metadata_of(pytorch_file::PytorchFile(path));
}

}  // namespace headroom::weights
