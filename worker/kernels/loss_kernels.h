// LossKernels: what the detection loss does to its matched rows, where they do
// not lie on the CPU.
//
// As MapKernels: the loss knows no CUDA and is handed these. M rows; work is
// put on the device's current stream, and nothing waits for it.
//
// Errors: HEADROOM_CHECK for shapes and types; c10::Error from the device.
#pragma once

#include "worker/kernels/entropy.h"

namespace at {
class Tensor;
}
namespace c10 {
struct Device;
}

namespace headroom::kernels {

class LossKernels {
 public:
  // A copy of a contiguous CPU tensor on a device; the host does not wait and
  // may release its own.
  virtual at::Tensor upload(const at::Tensor& host,
                            const c10::Device& device) = 0;

  // CIoU of each row and its gradient by the raw box (box_iou.h): fields [M,
  // at least 4], boxes [M, 4], anchors [M, 2] of float32 or float64; fills ciou
  // [M] and gradient [M, 4], double.
  virtual void fit_rows(const at::Tensor& fields, const at::Tensor& boxes,
                        const at::Tensor& anchors, const at::Tensor& ciou,
                        const at::Tensor& gradient) = 0;

  // Entropies (entropy.h) of logits [M], float32 or float64, with targets [M]:
  // fills value and derivative [M]. All but the logits double.
  virtual void entropies(const at::Tensor& logits, const at::Tensor& targets,
                         const EntropyRule& rule, const at::Tensor& value,
                         const at::Tensor& derivative) = 0;

 protected:
  ~LossKernels() = default;  // nobody owns them through this
};

}  // namespace headroom::kernels
