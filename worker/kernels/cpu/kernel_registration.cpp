#include "worker/kernels/cpu/kernel_registration.h"

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::kernels {
namespace {

struct Registration {
  c10::DeviceType type = c10::DeviceType::CUDA;
  DeviceKernels* kernels = nullptr;
};

Registration registered;

}  // namespace

void set_device_kernels(c10::DeviceType type, DeviceKernels* kernels) {
  registered = {type, kernels};
}

DeviceKernels* device_kernels_for(const at::Tensor& tensor) {
  if (registered.kernels != nullptr &&
      tensor.device().type() == registered.type) {
    return registered.kernels;
  }
  if (tensor.is_cpu()) return nullptr;
  throw Error("device",
              "a tensor is on " + tensor.device().str() +
                  ", for which no kernels are loaded",
              "use --device cpu");
}

}  // namespace headroom::kernels
