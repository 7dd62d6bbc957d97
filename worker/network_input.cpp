#include "worker/network_input.h"

namespace headroom {

at::Tensor network_input(const at::Tensor& images, at::ScalarType scalar_type) {
  return images.permute({0, 3, 1, 2}).to(at::kFloat).div_(255).to(scalar_type);
}

}  // namespace headroom
