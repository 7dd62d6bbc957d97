#include "worker/model/model_state.h"

#include <ATen/ops/empty.h>

#include "worker/model/initialisation.h"

namespace headroom {

ModelState::ModelState(at::ScalarType scalar_type, uint64_t seed)
    : scalar_type_(scalar_type), seed_(seed) {}

void ModelState::add_convolution_weight(const std::string& name,
                                        at::Tensor* tensor, int64_t c_out,
                                        int64_t c_in, int64_t kernel) {
  const int64_t fan_in = c_in * kernel * kernel;
  at::Tensor weight =
      at::empty({c_out, c_in, kernel, kernel},
                at::TensorOptions(scalar_type_)
                    .memory_format(at::MemoryFormat::ChannelsLast));
  weight.copy_(uniform_values({seed_, name}, weight.sizes(),
                              kaiming_bound(fan_in), scalar_type_));
  add(name, TensorRole::kConvolutionWeight, tensor, weight);
}

void ModelState::add(const std::string& name, TensorRole role,
                     at::Tensor* tensor, const at::Tensor& values) {
  *tensor = values.is_floating_point() ? values.to(scalar_type_) : values;
  tensors_.push_back({name, role, tensor});
  tensor->set_requires_grad(tensors_.back().is_parameter());
}

int64_t ModelState::add_batch_norm(const std::string& name, int64_t channels,
                                   at::Tensor* running_mean,
                                   at::Tensor* running_var) {
  const int64_t offset = batch_norm_sums_size_;
  batch_norms_.push_back({name, channels, offset, running_mean, running_var});
  batch_norm_sums_size_ += 2 * channels;
  return offset;
}

}  // namespace headroom
