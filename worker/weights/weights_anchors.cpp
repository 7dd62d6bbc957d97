#include "worker/weights/weights_anchors.h"

#include <string>

#include "configs/layers/layer_cost.h"
#include "worker/weights/weights_file.h"

namespace headroom::weights {

std::optional<layers::AnchorList> anchors_in_weights(
    const std::filesystem::path& path, const layers::ModelTable& table) {
  const Safetensors file = read_weights_file(path);
  const auto found = file.tensors.find(
      "model." + std::to_string(table.layers.size() - 1) + ".anchors");
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

}  // namespace headroom::weights
