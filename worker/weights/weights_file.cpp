#include "worker/weights/weights_file.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "configs/layers/layer_cost.h"
#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "parallel/base/text.h"
#include "worker/pytorch_file/pytorch_file.h"
#include "worker/weights/recognised_network.h"

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
    case Type::kBool:  // the file may contain values other than 0 and 1
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
  std::string model = file.model(), network = file.network();
  TensorShapes shapes;
  for (const pytorch_file::PytorchFile::Tensor& tensor : file.tensors()) {
    shapes[tensor.name] = tensor.sizes;
  }
  if (const auto known = recognise_network(shapes)) {
    model.clear();
    if (known->table) {
      network.clear();
      metadata.merge(layers::model_metadata(known->table->name, *known->table));
    } else if (network.empty()) {
      network = known->description;
    }
  }
  if (!model.empty()) metadata["model"] = model;
  if (!network.empty()) metadata[layers::kNetwork] = network;
  if (!file.class_names().empty()) {
    metadata["names"] =
        nlohmann::json(file.class_names())
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return metadata;
}

}  // namespace

Safetensors read_weights_file(const std::filesystem::path& path) {
  require_weights(path);
  if (!pytorch_file::is_pytorch_file(path)) return read_safetensors(path);
  pytorch_file::PytorchFile file(path);
  Safetensors result;
  for (const pytorch_file::PytorchFile::Tensor& tensor : file.tensors()) {
    // YOLOv5 6.0 and older store the anchors twice.
    if (tensor.name.ends_with(".anchor_grid")) continue;
    result.tensors.emplace(
        tensor.name, make_tensor(tensor, file.read_storage(tensor.storage)));
  }
  result.metadata = metadata_of(file);
  return result;
}

std::map<std::string, std::string> read_weights_metadata(
    const std::filesystem::path& path) {
  require_weights(path);
  if (!pytorch_file::is_pytorch_file(path)) {
    return read_safetensors_header(path).metadata;
  }
  return metadata_of(pytorch_file::PytorchFile(path));
}

bool are_weights_of_ours(const std::filesystem::path& path) {
  try {
    const auto metadata = read_weights_metadata(path);
    const auto format = metadata.find("format");
    return format != metadata.end() && format->second == "headroom-weights";
  } catch (const Error&) {
    return false;
  }
}

void require_replaceable_weights(const std::filesystem::path& path,
                                 const std::string& tag,
                                 const std::string& remedy) {
  std::error_code error;
  const auto there = std::filesystem::status(path, error);
  if (!std::filesystem::exists(there)) return;
  const bool is_empty = std::filesystem::is_regular_file(there) &&
                        std::filesystem::file_size(path, error) == 0;
  if (is_empty || are_weights_of_ours(path)) return;
  throw Error(tag,
              path.string() +
                  " is there, and is no file of weights that Headroom wrote",
              remedy);
}

std::optional<layers::AnchorList> anchors_in_weights(
    const std::filesystem::path& path, const layers::ModelTable& table) {
  if (table.anchors.empty()) return std::nullopt;
  const Safetensors file = read_weights_file(path);
  const auto found =
      file.tensors.find(cat("model.", table.layers.size() - 1, ".anchors"));
  if (found == file.tensors.end()) return std::nullopt;
  const at::Tensor cells =
      found->second.detach().to(at::kDouble).contiguous();  // [levels, n, 2]
  const auto levels = static_cast<int64_t>(table.anchors.size());
  const auto per_level = static_cast<int64_t>(table.anchors.front().size());
  if (cells.sizes() != at::IntArrayRef({levels, per_level, 2})) {
    return std::nullopt;
  }
  const std::vector<layers::LayerCost> layers = layers::layer_costs(table);
  const double* next = cells.const_data_ptr<double>();
  layers::AnchorList anchors;
  for (const int input : layers.back().inputs) {
    const auto stride =
        static_cast<double>(layers[static_cast<size_t>(input)].stride);
    anchors.emplace_back();
    for (int64_t i = 0; i < per_level; ++i, next += 2) {
      anchors.back().emplace_back(next[0] * stride, next[1] * stride);
    }
  }
  return anchors;
}

std::vector<std::string> class_names_of(
    const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> names;
  const auto said = metadata.find("names");
  if (said == metadata.end()) return names;
  const auto list = nlohmann::json::parse(said->second, nullptr, false);
  if (!list.is_array()) return names;
  for (const auto& name : list) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

std::string class_name_note(const std::vector<std::string>& of_weights,
                            const std::vector<std::string>& of_data,
                            const std::string& weights,
                            const std::string& data) {
  if (of_weights.size() != of_data.size()) return "";
  const auto [theirs, here] =
      std::mismatch(of_weights.begin(), of_weights.end(), of_data.begin());
  if (theirs == of_weights.end()) return "";
  const bool is_reordered = std::is_permutation(
      of_weights.begin(), of_weights.end(), of_data.begin());
  return cat("class ", theirs - of_weights.begin(), " is '", *here, "' in ",
             data, ", but '", *theirs, "' in ", weights,
             ": classes are compared by number, ",
             is_reordered ? "and these are the same names in another order"
                          : "whatever their names");
}

}  // namespace headroom::weights
