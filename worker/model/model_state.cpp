#include "worker/model/model_state.h"

#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/ops/empty.h>
#include <xxhash.h>

#include <cmath>
#include <utility>

namespace headroom::model {

ModelState::ModelState(at::ScalarType scalar_type, uint64_t seed)
    : scalar_type_(scalar_type), seed_(seed) {}

void ModelState::add_convolution_weight(const std::string& name,
                                        at::Tensor* tensor, at::Tensor* compute,
                                        int64_t c_out, int64_t c_in,
                                        int64_t kernel) {
  const int64_t fan_in = c_in * kernel * kernel;
  at::Tensor weight =
      at::empty({c_out, c_in, kernel, kernel},
                at::TensorOptions(scalar_type_)
                    .memory_format(at::MemoryFormat::ChannelsLast));
  weight.copy_(uniform_values({seed_, name}, weight.sizes(),
                              kaiming_bound(fan_in), scalar_type_));
  add(name, TensorRole::kConvolutionWeight, tensor, weight);
  tensors_.back().compute = compute;
}

void ModelState::add(const std::string& name, TensorRole role,
                     at::Tensor* tensor, const at::Tensor& values) {
  *tensor = values.is_floating_point() ? values.to(scalar_type_) : values;
  tensors_.push_back({name, role, tensor, nullptr, layer_});
  tensor->set_requires_grad(tensors_.back().is_parameter());
}

void ModelState::add_batch_norm(const std::string& name, int64_t channels,
                                at::Tensor* running_mean,
                                at::Tensor* running_var, int64_t* sums_offset) {
  *sums_offset = batch_norm_sums_size_;
  batch_norms_.push_back({.name = name,
                          .channels = channels,
                          .sums_offset = *sums_offset,
                          .running_mean = running_mean,
                          .running_var = running_var,
                          .layer = layer_});
  sums_offsets_.push_back(sums_offset);
  batch_norm_sums_size_ += 2 * channels;
}

void ModelState::keep_layers(int64_t begin, int64_t end) {
  const auto is_dropped = [begin, end](const auto& entry) {
    return entry.layer < begin || entry.layer >= end;
  };
  std::erase_if(tensors_, is_dropped);

  std::vector<LayerGraph::BatchNorm> kept;
  std::vector<int64_t*> kept_offsets;
  batch_norm_sums_size_ = 0;
  for (std::size_t i = 0; i < batch_norms_.size(); ++i) {
    if (is_dropped(batch_norms_[i])) continue;
    kept.push_back(batch_norms_[i]);
    kept_offsets.push_back(sums_offsets_[i]);
    kept.back().sums_offset = batch_norm_sums_size_;
    *kept_offsets.back() = batch_norm_sums_size_;
    batch_norm_sums_size_ += 2 * kept.back().channels;
  }
  batch_norms_ = std::move(kept);
  sums_offsets_ = std::move(kept_offsets);
}

at::Tensor uniform_values(const InitialisationKey& key, at::IntArrayRef sizes,
                          double bound, at::ScalarType scalar_type) {
  const uint64_t stream = XXH3_64bits(key.name.data(), key.name.size());
  at::philox_engine engine(key.seed, stream);
  at::Tensor values = at::empty(sizes, at::kFloat);
  float* out = values.data_ptr<float>();
  const auto scale = static_cast<float>(bound);
  for (int64_t i = 0; i < values.numel(); ++i) {
    // A float holds 24 bits exactly, so no value is rounded up to +bound.
    const auto signed_bits =
        static_cast<int32_t>(engine() >> 8) - (int32_t{1} << 23);
    out[i] = scale * (static_cast<float>(signed_bits) * 0x1p-23f);
  }
  return values.to(scalar_type);
}

double kaiming_bound(int64_t fan_in) {
  return 1 / std::sqrt(static_cast<double>(fan_in));
}

}  // namespace headroom::model
