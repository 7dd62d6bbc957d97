#include "tests/support/plain_autograd.h"

#include <ATen/ops/add.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/upsample_nearest2d.h>

#include <string>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"

namespace headroom {
PlainNetwork::PlainNetwork(const layers::ModelTable& table,
                           model::LayerGraph& model)
    : table_(table), edges_(model.inputs()) {
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.is_parameter()) entry.tensor->requires_grad_();
    tensors_[entry.name] = *entry.tensor;
  }
}

std::vector<at::Tensor> PlainNetwork::forward(const at::Tensor& images) const {
  std::vector<at::Tensor> maps;
  for (size_t layer = 0; layer < table_.layers.size(); ++layer) {
    std::vector<at::Tensor> inputs;
    for (const int from : edges_[layer]) {
      inputs.push_back(from < 0 ? images : maps[static_cast<size_t>(from)]);
    }
    const std::string& module = table_.layers[layer].module;
    const std::string prefix = "model." + std::to_string(layer) + ".";
    if (module == "Detect") return detect(prefix, inputs);
    maps.push_back(run(module, prefix, layer, inputs));
  }
  HEADROOM_CHECK(false, "a table without a head");
}

at::Tensor PlainNetwork::run(const std::string& module,
                             const std::string& prefix, size_t layer,
                             const std::vector<at::Tensor>& inputs) const {
  const at::Tensor& x = inputs.front();
  if (module == "Conv") {
    const auto& args = table_.layers[layer].args;
    const auto number = [&args](size_t i) {
      return static_cast<int64_t>(std::get<double>(args.at(i)));
    };
    return conv(prefix, x, args.size() > 2 ? number(2) : 1,
                args.size() > 3 ? number(3) : number(1) / 2);
  }
  if (module == "C3") return c3(prefix, x);
  if (module == "SPPF") return sppf(prefix, x);
  if (module == "Concat") return at::cat(inputs, 1);
  HEADROOM_CHECK(module == "nn.Upsample", module);
  return at::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)}, 2.0, 2.0);
}

at::Tensor PlainNetwork::conv(const std::string& prefix, const at::Tensor& x,
                              int64_t stride, int64_t padding) const {
  const at::Tensor& weight = tensors_.at(prefix + "conv.weight");
  if (padding < 0) padding = weight.size(2) / 2;
  return at::silu(at::batch_norm(
      at::conv2d(x, weight, {}, stride, padding),
      tensors_.at(prefix + "bn.weight"), tensors_.at(prefix + "bn.bias"),
      tensors_.at(prefix + "bn.running_mean"),
      tensors_.at(prefix + "bn.running_var"), /*training=*/true, 0.03, 1e-3,
      /*cudnn_enabled=*/false));
}

at::Tensor PlainNetwork::c3(const std::string& prefix,
                            const at::Tensor& x) const {
  at::Tensor deep = conv(prefix + "cv1.", x);
  // Only layers of the backbone have shortcuts; the backbone ends with SPPF.
  const size_t layer = std::stoul(prefix.substr(6));
  bool in_backbone = false;
  for (size_t later = layer; later < table_.layers.size(); ++later)
    in_backbone = in_backbone || table_.layers[later].module == "SPPF";
  for (int i = 0;; ++i) {
    const std::string inner = prefix + "m." + std::to_string(i) + ".";
    if (!tensors_.contains(inner + "cv1.conv.weight")) break;
    const at::Tensor y = conv(inner + "cv2.", conv(inner + "cv1.", deep));
    deep = in_backbone ? at::add(deep, y) : y;
  }
  return conv(prefix + "cv3.", at::cat({deep, conv(prefix + "cv2.", x)}, 1));
}

at::Tensor PlainNetwork::sppf(const std::string& prefix,
                              const at::Tensor& x) const {
  std::vector<at::Tensor> maps{conv(prefix + "cv1.", x)};
  for (int pooling = 0; pooling < 3; ++pooling)
    maps.push_back(at::max_pool2d(maps.back(), {5, 5}, {1, 1}, {2, 2}));
  return conv(prefix + "cv2.", at::cat(maps, 1));
}

std::vector<at::Tensor> PlainNetwork::detect(
    const std::string& prefix, const std::vector<at::Tensor>& inputs) const {
  std::vector<at::Tensor> heads;
  for (size_t level = 0; level < inputs.size(); ++level) {
    const std::string name = prefix + "m." + std::to_string(level) + ".";
    heads.push_back(at::conv2d(inputs[level], tensors_.at(name + "weight"),
                               tensors_.at(name + "bias")));
  }
  return heads;
}

int64_t plain_autograd_bytes(const layers::ModelTable& table,
                             int64_t num_classes, int64_t images,
                             int64_t height, int64_t width,
                             at::ScalarType type) {
  activations::CountingAllocator::install();
  const activations::CountingAllocator& memory =
      activations::CountingAllocator::instance();
  model::LayerGraph model(table, num_classes, type, 0);
  const PlainNetwork network(table, model);
  const int64_t before = memory.live_bytes();
  const std::vector<at::Tensor> heads = network.forward(
      at::rand({images, 3, height, width}, at::TensorOptions(type))
          .contiguous(at::MemoryFormat::ChannelsLast));
  return memory.live_bytes() - before;
}

}  // namespace headroom
