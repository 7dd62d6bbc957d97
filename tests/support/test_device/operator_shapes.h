// The shapes of an operator's results, before it has run on the test device:
// found by running it once on the CPU over zeros of the same shapes, and kept
// for all calls of the same signature. So the host can continue while the
// device works.
//
// Threads: any.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace headroom {

struct TensorShape {
  bool is_defined = false;
  std::vector<int64_t> sizes, strides;
  at::ScalarType type = at::kFloat;
};
TensorShape shape_of(const at::Tensor& tensor);

// "Float[2,3](3,1)".
std::string signature(const at::Tensor& tensor);

// Zeros of the same sizes and strides on the CPU.
at::Tensor zeros_of_shape(const at::Tensor& tensor);

// A tensor of the host with its current values; a number stays one.
at::Tensor copy_of_number(const at::Tensor& tensor);

// A result: new, or an argument that was written to, or a view of one.
struct ResultShape {
  enum class Kind { kNew, kWritten, kView };
  Kind kind = Kind::kNew;
  size_t argument = 0;
  int64_t offset = 0;  // of a view, in elements from its argument's first
  TensorShape shape;
};

struct OperatorShapes {
  std::vector<ResultShape> results;
  // Output arguments that must be resized, with their new sizes.
  std::vector<std::pair<size_t, std::vector<int64_t>>> grown;
};

// The shapes by the signature; `find` is called the first time.
std::shared_ptr<const OperatorShapes> known_shapes(
    const std::string& signature, const std::function<OperatorShapes()>& find);

// The shapes of the results of an operator's call, whose arguments are the
// stack's last. Null where the host must wait for the device: for a number, or
// a size that depends on values.
std::shared_ptr<const OperatorShapes> shapes_of_call(
    const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace headroom
