// Finds the shapes of an operator's results before the operator has run on the
// test device, so that the host can continue while the device works. The
// operator is run once on the CPU with zeros of the same shapes; the result is
// stored for all calls with the same signature.
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

// Describes a tensor's type, sizes and strides, such as "Float[2,3](3,1)".
std::string signature(const at::Tensor& tensor);

// Zeros of the same sizes and strides on the CPU.
at::Tensor zeros_of_shape(const at::Tensor& tensor);

// Returns a copy on the CPU with the tensor's current values. The copy of a
// wrapped number is a wrapped number too.
at::Tensor copy_of_number(const at::Tensor& tensor);

// A result of an operator: a new tensor, an argument that was written to, or a
// view of an argument.
struct ResultShape {
  enum class Kind { kNew, kWritten, kView };
  Kind kind = Kind::kNew;
  size_t argument = 0;
  int64_t offset = 0;  // of a view: elements from its argument's first
  TensorShape shape;
};

struct OperatorShapes {
  std::vector<ResultShape> results;
  // Output arguments that must be resized, with their new sizes.
  std::vector<std::pair<size_t, std::vector<int64_t>>> grown;
};

// Returns the stored shapes of the signature; calls `find` for a new signature.
std::shared_ptr<const OperatorShapes> known_shapes(
    const std::string& signature, const std::function<OperatorShapes()>& find);

// The shapes of the results of an operator's call, whose arguments are the last
// ones of the stack. Returns null if the host must wait for the device, since a
// result is a number or a size depends on values.
std::shared_ptr<const OperatorShapes> shapes_of_call(
    const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace headroom
