#include "worker/step/network_input.h"

namespace headroom::step {

at::Tensor network_input(const at::Tensor& images,
                         const at::TensorOptions& options) {
  return images.to(options.device())
      .permute({0, 3, 1, 2})
      .to(at::kFloat)
      .div_(255)
      .to(c10::typeMetaToScalarType(options.dtype()));
}

}  // namespace headroom::step
