#include "tests/support/test_device/operator_shapes.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "parallel/activations/counting_allocator.h"

namespace headroom {
namespace {

// Returns true if the number of the operator's results, or their shapes, may
// depend on the values of its inputs; also if a result is no tensor, and if the
// operator draws random numbers.
bool depends_on_values(const c10::OperatorHandle& op,
                       const torch::jit::Stack& stack) {
  static const std::set<std::string> names = {"aten::nonzero",
                                              "aten::masked_select",
                                              "aten::_unique2",
                                              "aten::unique_dim",
                                              "aten::repeat_interleave.Tensor",
                                              "aten::bincount"};
  const c10::FunctionSchema& schema = op.schema();
  if (names.contains(schema.name())) return true;
  for (const c10::Argument& result : schema.returns()) {
    if (result.type()->kind() != c10::TypeKind::TensorType) return true;
  }
  const auto is_mask = [](const at::Tensor& tensor) {
    return tensor.defined() && (tensor.scalar_type() == at::kBool ||
                                tensor.scalar_type() == at::kByte);
  };
  const bool has_indices = schema.name().starts_with("aten::index");
  for (size_t i = stack.size() - schema.arguments().size(); i < stack.size();
       ++i) {
    // Random numbers must be drawn in order.
    if (stack[i].isGenerator()) return true;
    if (!has_indices || !stack[i].isOptionalTensorList()) continue;
    for (const auto& tensor : stack[i].toOptionalTensorVector()) {
      if (tensor && is_mask(*tensor)) return true;
    }
  }
  return false;
}

// A number with a fraction never changes a shape, so its value is not part of
// the text. An integer may be a size.
std::string text_of(const c10::IValue& value) {
  if (value.isTensor()) return signature(value.toTensor());
  std::string text;
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      text += signature(tensor);
    }
    return text;
  }
  if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) {
      text += tensor ? signature(*tensor) : "-";
    }
    return text;
  }
  if (value.isDouble()) return "double";
  std::ostringstream out;
  out << value;
  return out.str();
}

c10::IValue zeros_in_place_of(const c10::IValue& value) {
  if (value.isTensor()) return zeros_of_shape(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(zeros_of_shape(tensor));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(zeros_of_shape(*tensor))
                            : std::nullopt);
    }
    return list;
  }
  return value.isDevice() ? c10::IValue(c10::Device(c10::kCPU)) : value;
}

int64_t elements_between(const at::Tensor& first, const at::Tensor& view) {
  if (view.numel() == 0) return 0;
  return (static_cast<const char*>(view.const_data_ptr()) -
          static_cast<const char*>(first.const_data_ptr())) /
         static_cast<int64_t>(view.element_size());
}

OperatorShapes run_over_zeros(const c10::OperatorHandle& op,
                              const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  torch::jit::Stack zeros;
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    zeros.push_back(zeros_in_place_of(stack[i]));
  }
  const torch::jit::Stack given = zeros;
  std::vector<std::vector<int64_t>> sizes(count);
  for (size_t i = 0; i < count; ++i) {
    if (given[i].isTensor() && given[i].toTensor().defined()) {
      sizes[i] = given[i].toTensor().sizes().vec();
    }
  }
  op.callBoxed(&zeros);
  OperatorShapes shapes;
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const at::Tensor& tensor = zeros[i].toTensor();
    ResultShape result;
    result.shape = shape_of(tensor);
    const c10::AliasInfo* const alias = schema.returns()[i].alias_info();
    for (size_t at = 0; alias != nullptr && at < count; ++at) {
      const c10::AliasInfo* const of = schema.arguments()[at].alias_info();
      if (of == nullptr || of->beforeSets() != alias->beforeSets()) continue;
      result.kind = alias->isWrite() ? ResultShape::Kind::kWritten
                                     : ResultShape::Kind::kView;
      result.argument = at;
      result.offset = elements_between(given[at].toTensor(), tensor);
    }
    shapes.results.push_back(std::move(result));
  }
  for (size_t i = 0; i < count; ++i) {
    if (!given[i].isTensor() || !given[i].toTensor().defined()) continue;
    const auto now = given[i].toTensor().sizes();
    if (!now.equals(sizes[i])) shapes.grown.emplace_back(i, now.vec());
  }
  return shapes;
}

}  // namespace

TensorShape shape_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {true, tensor.sizes().vec(), tensor.strides().vec(),
          tensor.scalar_type()};
}

std::string signature(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  std::string text = c10::toString(tensor.scalar_type());
  if (tensor.is_cpu()) text += "'";  // a tensor of the host
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) text += "number";
  for (const int64_t size : tensor.sizes()) text += ',' + std::to_string(size);
  for (const int64_t stride : tensor.strides()) {
    text += ';' + std::to_string(stride);
  }
  return text;
}

at::Tensor zeros_of_shape(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (tensor.is_cpu() && tensor.dim() == 0) return copy_of_number(tensor);
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions(tensor.scalar_type()))
      .zero_();
}

at::Tensor copy_of_number(const at::Tensor& tensor) {
  const activations::CountingAllocator::HostMemory not_counted;
  at::Tensor copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

std::shared_ptr<const OperatorShapes> known_shapes(
    const std::string& signature, const std::function<OperatorShapes()>& find) {
  static auto* const mutex = new std::mutex;
  static auto* const all =
      new std::map<std::string, std::shared_ptr<const OperatorShapes>>;
  {
    const std::lock_guard lock(*mutex);
    const auto found = all->find(signature);
    if (found != all->end()) return found->second;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  const activations::CountingAllocator::HostMemory not_counted;
  auto shapes = std::make_shared<const OperatorShapes>(find());
  const std::lock_guard lock(*mutex);
  return all->emplace(signature, std::move(shapes)).first->second;
}

std::shared_ptr<const OperatorShapes> shapes_of_call(
    const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (depends_on_values(op, stack)) return nullptr;
  std::string key = op.schema().name() + '.' + op.schema().overload_name();
  for (size_t i = stack.size() - op.schema().arguments().size();
       i < stack.size(); ++i) {
    key += '|' + text_of(stack[i]);
  }
  return known_shapes(key, [&] { return run_over_zeros(op, stack); });
}

}  // namespace headroom
