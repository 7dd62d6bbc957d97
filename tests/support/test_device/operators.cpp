#include "tests/support/test_device/operators.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "tests/support/test_device/device_pages.h"
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/operator_shapes.h"
#include "tests/support/test_device/page_locks.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_device_memory.h"
#include "tests/support/test_device/test_graph.h"

namespace headroom {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

// The smallest workspace of a convolution; a share of its maps is added. No
// result of a test has this size.
constexpr int64_t kLeastWorkspace = 1037;

// --- memory --------------------------------------------------------------

c10::DispatchKeySet keys() {
  return c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, c10::GetAllocator(kType), keys(),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_with_strides(at::IntArrayRef size, at::IntArrayRef stride,
                              std::optional<at::ScalarType> type,
                              std::optional<at::Layout>,
                              std::optional<at::Device> device,
                              std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride,
                                           c10::GetAllocator(kType), keys(),
                                           c10::dtype_or_default(type));
}

const at::Tensor& resize_storage(const at::Tensor& self, at::IntArrayRef size,
                                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format && *format != at::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*format);
  }
  c10::StorageImpl* const storage = self.storage().unsafeGetStorageImpl();
  const size_t needed =
      static_cast<size_t>(self.storage_offset() + self.numel()) *
      self.element_size();
  if (needed <= storage->nbytes()) return self;
  c10::Allocator* const allocator = c10::GetAllocator(kType);
  c10::DataPtr memory = allocator->allocate(needed);
  if (storage->nbytes() > 0) {
    do_or_remember(
        self.device(),
        [allocator, to = memory.get(), from = storage->data(),
         bytes = storage->nbytes()] { allocator->copy_data(to, from, bytes); });
  }
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(needed);
  return self;
}

void copy_bytes(const at::Tensor& source, const at::Tensor& target) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const activations::CountingAllocator::HostMemory not_counted;
  target.copy_(source);
}

// Returns an argument in the form that a kernel needs if it runs later: a
// tensor of the device becomes a view that does not keep its memory alive, and
// a number of the host becomes a copy of its current value.
at::Tensor in_kernel(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  if (tensor.device().type() == kType) return kernel_view(tensor);
  return copy_of_number(tensor);
}

c10::Stream current_stream(c10::Device device) {
  return TestStreams::instance().current(device);
}

// Copies between two devices, in the order of the streams of both.
void copy_between(const at::Tensor& source, const at::Tensor& target) {
  TestStreams& streams = TestStreams::instance();
  const c10::Stream from = current_stream(source.device()),
                    to = current_stream(target.device());
  streams.wait(from, streams.moment(to));
  streams.give(from,
               [source = kernel_view(source), target = kernel_view(target)] {
                 copy_bytes(source, target);
               });
  streams.wait(to, streams.moment(from));
}

// From pageable memory, CUDA copies small tensors at once; for larger ones it
// makes the host wait for the stream first.
constexpr size_t kMostStagedBytes = 64 << 10;

// Wraps host memory that a later copy reads or writes.
at::Tensor in_pages(const at::Tensor& host) {
  return at::from_blob(host.data_ptr(), host.sizes(), host.strides(),
                       host.options());
}

// On a stream other than the first the copied memory must be page-locked: CUDA
// would make the host wait otherwise.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target,
                     bool non_blocking) {
  count_launch(target.is_cpu() ? "read" : "copy");
  const bool is_upload = source.is_cpu();
  const c10::Device device = is_upload ? target.device() : source.device();
  if (source.numel() == 0) return target;
  if (!is_upload && !target.is_cpu()) {
    if (source.device() != target.device()) {
      copy_between(source, target);
      return target;
    }
    do_or_remember(device,
                   [from = kernel_view(source), to = kernel_view(target)] {
                     copy_bytes(from, to);
                   });
    return target;
  }
  const at::Tensor& host = is_upload ? source : target;
  const c10::Stream stream = current_stream(device);
  const bool is_locked = is_page_locked(host.const_data_ptr());
  TORCH_CHECK(stream.id() == 0 || !non_blocking || is_locked,
              "a copy beside the first stream from pages that may move");
  refuse_while_captured();
  TestStreams& streams = TestStreams::instance();
  if (is_upload && non_blocking && !is_locked &&
      source.nbytes() <= kMostStagedBytes) {
    streams.give(stream, [from = in_kernel(source), to = kernel_view(target)] {
      copy_bytes(from, to);
    });
    return target;
  }
  const at::Tensor from = is_upload ? in_pages(source) : kernel_view(source);
  const at::Tensor to = is_upload ? kernel_view(target) : in_pages(target);
  streams.give(stream, [from, to] { copy_bytes(from, to); });
  if (!non_blocking || !is_locked) streams.finish(stream);
  return target;
}

at::Tensor make(const TensorShape& shape, c10::Device device) {
  if (!shape.is_defined) return {};
  return empty_with_strides(shape.sizes, shape.strides, shape.type, {}, device,
                            {});
}

// Copies a CPU result into a new tensor of the device.
at::Tensor placed(const at::Tensor& result, c10::Device device) {
  const at::Tensor tensor = make(shape_of(result), device);
  if (result.defined()) {
    do_or_remember(
        device, [result, to = kernel_view(tensor)] { copy_bytes(result, to); });
  }
  return tensor;
}

// --- operators -----------------------------------------------------------

// One call of an operator, whose arguments are the last ones of the stack.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op),
        stack_(stack),
        count_(op.schema().arguments().size()),
        begin_(stack.size() - count_) {
    at::Tensor host;
    for (size_t i = 0; i < count_; ++i) {
      const c10::IValue& value = stack_[begin_ + i];
      if (value.isTensor()) {
        look_at(value.toTensor(), host);
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorVector()) {
          look_at(tensor, host);
        }
      } else if (value.isOptionalTensorList()) {
        for (const auto& tensor : value.toOptionalTensorVector()) {
          if (tensor) look_at(*tensor, host);
        }
      } else if (value.isDevice() && value.toDevice().type() == kType) {
        device_ = value.toDevice();
      }
    }
    TORCH_CHECK(!host.defined() || !device_, op.schema().name(),
                ": a tensor of the host among those of ", *device_);
    TORCH_CHECK(device_, op.schema().name(), ": on no device");
    if (!device_->has_index()) {
      device_ = c10::impl::getDeviceGuardImpl(kType)->getDevice();
    }
  }

  void give(const OperatorShapes& shapes) {
    for (const auto& [argument, sizes] : shapes.grown) {
      resize_storage(given(argument), sizes, std::nullopt);
    }
    std::vector<at::Tensor> results, places;
    for (const ResultShape& result : shapes.results) {
      const bool is_new = result.kind == ResultShape::Kind::kNew;
      results.push_back(is_new ? make(result.shape, *device_) : alias(result));
      places.push_back(is_new ? kernel_view(results.back()) : at::Tensor());
    }
    const bool is_view =
        !shapes.results.empty() &&
        std::ranges::all_of(shapes.results, [](const ResultShape& result) {
          return result.kind == ResultShape::Kind::kView;
        });
    if (!is_view) {
      do_or_remember(*device_, [op = op_, arguments = arguments(), places] {
        run(op, arguments, places);
      });
    }
    put_back(results);
  }

  // The host waits for the device, and computes the results itself.
  void compute() {
    refuse_while_captured();
    TestStreams::instance().finish(current_stream(*device_));
    torch::jit::Stack values = arguments();
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      const activations::CountingAllocator::HostMemory not_counted;
      op_.callBoxed(&values);
    }
    const c10::FunctionSchema& schema = op_.schema();
    for (size_t i = 0; i < schema.returns().size(); ++i) {
      if (!values[i].isTensor()) continue;
      const c10::AliasInfo* const alias = schema.returns()[i].alias_info();
      if (alias == nullptr) {
        values[i] = placed(values[i].toTensor(), *device_);
        continue;
      }
      for (size_t at = 0; at < count_; ++at) {
        const c10::AliasInfo* const of = schema.arguments()[at].alias_info();
        if (of != nullptr && of->beforeSets() == alias->beforeSets()) {
          values[i] = given(at);
        }
      }
    }
    stack_.resize(begin_);
    stack_.insert(stack_.end(), values.begin(), values.end());
  }

 private:
  void look_at(const at::Tensor& tensor, at::Tensor& host) {
    if (!tensor.defined()) return;
    if (tensor.device().type() == kType) {
      device_ = tensor.device();
    } else if (tensor.dim() > 0) {
      host = tensor;
    }
  }

  const at::Tensor& given(size_t argument) const {
    return stack_[begin_ + argument].toTensor();
  }

  at::Tensor alias(const ResultShape& result) const {
    const at::Tensor& base = given(result.argument);
    if (result.kind == ResultShape::Kind::kWritten) return base;
    return at::native::as_strided_tensorimpl(
        base, result.shape.sizes, result.shape.strides,
        base.storage_offset() + result.offset);
  }

  torch::jit::Stack arguments() const {
    torch::jit::Stack copy(stack_.begin() + static_cast<std::ptrdiff_t>(begin_),
                           stack_.end());
    for (c10::IValue& value : copy) {
      if (value.isTensor()) {
        value = in_kernel(value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& tensor : value.toTensorVector()) {
          list.push_back(in_kernel(tensor));
        }
        value = std::move(list);
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& tensor : value.toOptionalTensorVector()) {
          list.push_back(tensor ? std::optional(in_kernel(*tensor))
                                : std::nullopt);
        }
        value = std::move(list);
      } else if (value.isDevice()) {
        value = c10::Device(c10::kCPU);
      }
    }
    return copy;
  }

  static void run(const c10::OperatorHandle& op, torch::jit::Stack stack,
                  const std::vector<at::Tensor>& places) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const activations::CountingAllocator::HostMemory not_counted;
    op.callBoxed(&stack);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].defined()) copy_bytes(stack[i].toTensor(), places[i]);
    }
  }

  void put_back(const std::vector<at::Tensor>& results) {
    stack_.resize(begin_);
    stack_.insert(stack_.end(), results.begin(), results.end());
  }

  const c10::OperatorHandle op_;
  torch::jit::Stack& stack_;
  const size_t count_, begin_;
  std::optional<c10::Device> device_;
};

// Results that share memory with arguments and are not written to are views;
// nothing is launched for views.
bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    const c10::AliasInfo* const alias = result.alias_info();
    if (alias != nullptr && !alias->isWrite()) return true;
  }
  return false;
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!is_view(op.schema())) count_launch(op.schema().name());
  const at::AutoDispatchBelowADInplaceOrView below;
  Call call(op, *stack);
  if (const auto shapes = shapes_of_call(op, *stack)) {
    call.give(*shapes);
  } else {
    call.compute();
  }
}

// As with cuDNN, the workspace is allocated once the result exists, and then
// freed.
void take_workspace(int64_t bytes, c10::Device device) {
  empty({bytes}, at::kByte, {}, device, {}, {});
}

// cuDNN has no float64 convolution for channels-last tensors: the inputs are
// copied, and the results are contiguous.
constexpr int64_t kMapAxes = 4;
bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kDouble;
}
at::Tensor as_convolved(const at::Tensor& tensor) {
  return is_plain(tensor) ? tensor.contiguous() : tensor;
}

// The signature of a convolution's call.
template <typename... Values>
std::string signature_of(const Values&... values) {
  std::ostringstream text;
  const auto add = [&](const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) {
      text << signature(value) << '|';
    } else {
      text << value << '|';
    }
  };
  (add(values), ...);
  return text.str();
}

OperatorShapes new_results(const std::vector<at::Tensor>& tensors) {
  const activations::CountingAllocator::HostMemory not_counted;
  OperatorShapes shapes;
  for (const at::Tensor& tensor : tensors) {
    shapes.results.emplace_back().shape =
        shape_of(is_plain(tensor) ? tensor.contiguous() : tensor);
  }
  return shapes;
}

// Returns the input in the memory format that makes the CPU's convolution add
// in the same order as in a run on the CPU.
at::Tensor channels_last(const at::Tensor& tensor) {
  if (!is_plain(tensor) || tensor.dim() != kMapAxes) return tensor;
  const auto options =
      tensor.options().memory_format(at::MemoryFormat::ChannelsLast);
  return at::empty(tensor.sizes(), options).copy_(tensor);
}

at::Tensor convolve(const at::Tensor& given, const at::Tensor& given_weight,
                    const std::optional<at::Tensor>& bias,
                    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                    c10::SymIntArrayRef dilation, bool transposed,
                    c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  count_launch("convolution");
  const at::Tensor x = as_convolved(given);
  const at::Tensor of_bias = bias ? *bias : at::Tensor();
  const auto call = [stride = stride.vec(), padding = padding.vec(),
                     dilation = dilation.vec(), transposed,
                     output_padding = output_padding.vec(),
                     groups](const at::Tensor& of, const at::Tensor& with,
                             const at::Tensor& plus) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const activations::CountingAllocator::HostMemory not_counted;
    return at::convolution_symint(
        channels_last(of), channels_last(with),
        plus.defined() ? std::optional(plus) : std::nullopt, stride, padding,
        dilation, transposed, output_padding, groups);
  };
  const auto shapes = known_shapes(
      "convolution|" + signature_of(x, given_weight, of_bias, stride, padding,
                                    dilation, transposed, output_padding,
                                    groups),
      [&] {
        return new_results(
            {call(zeros_of_shape(x), zeros_of_shape(given_weight),
                  zeros_of_shape(of_bias))});
      });
  at::Tensor y = make(shapes->results.front().shape, x.device());
  const at::Tensor weight = as_convolved(given_weight);
  do_or_remember(x.device(),
                 [call, x = in_kernel(x), weight = in_kernel(weight),
                  of_bias = in_kernel(of_bias), to = kernel_view(y)] {
                   copy_bytes(call(x, weight, of_bias), to);
                 });
  take_workspace(static_cast<int64_t>(x.nbytes()) / 2 + kLeastWorkspace,
                 x.device());
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_gradients(
    const at::Tensor& given_dy, const at::Tensor& given,
    const at::Tensor& given_weight, c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation, bool transposed,
    c10::SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> wanted) {
  const at::Tensor x = as_convolved(given);
  const at::Tensor dy = as_convolved(given_dy);
  const auto call = [stride = stride.vec(), padding = padding.vec(),
                     dilation = dilation.vec(), transposed,
                     output_padding = output_padding.vec(), groups,
                     wanted](const at::Tensor& by, const at::Tensor& of,
                             const at::Tensor& with) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const activations::CountingAllocator::HostMemory not_counted;
    const std::vector<c10::SymInt> bias = {with.sym_size(0)};
    auto [dx, dweight, dbias] = at::convolution_backward_symint(
        channels_last(by), channels_last(of), channels_last(with),
        c10::SymIntArrayRef(bias), stride, padding, dilation, transposed,
        output_padding, groups, wanted);
    return std::vector<at::Tensor>{dx, dweight, dbias};
  };
  count_launch("convolution_backward", wanted[0] + wanted[1] + wanted[2]);
  const auto shapes = known_shapes(
      "convolution_backward|" + signature_of(dy, x, given_weight, stride,
                                             padding, dilation, transposed,
                                             output_padding, groups, wanted[0],
                                             wanted[1], wanted[2]),
      [&] {
        return new_results(call(zeros_of_shape(dy), zeros_of_shape(x),
                                zeros_of_shape(given_weight)));
      });
  const auto place = [&](size_t result, int64_t workspace) {
    const TensorShape& shape = shapes->results[result].shape;
    at::Tensor tensor = make(shape, x.device());
    if (shape.is_defined) {
      take_workspace(workspace + kLeastWorkspace, x.device());
    }
    return tensor;
  };
  at::Tensor dx = place(0, static_cast<int64_t>(dy.nbytes()) / 2);
  const at::Tensor weight = as_convolved(given_weight);
  at::Tensor dweight = place(1, static_cast<int64_t>(x.nbytes()) / 4);
  at::Tensor dbias = make(shapes->results[2].shape, x.device());
  do_or_remember(
      x.device(),
      [call, dy = in_kernel(dy), x = in_kernel(x), weight = in_kernel(weight),
       places = std::vector<at::Tensor>{kernel_view(dx), kernel_view(dweight),
                                        kernel_view(dbias)}] {
        const std::vector<at::Tensor> results = call(dy, x, weight);
        for (size_t i = 0; i < results.size(); ++i) {
          if (places[i].defined()) copy_bytes(results[i], places[i]);
        }
      });
  return {std::move(dx), std::move(dweight), std::move(dbias)};
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_with_strides));
  m.impl("resize_", TORCH_FN(resize_storage));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("set_.source_Storage_storage_offset",
         TORCH_FN(at::native::set_storage_cpu_));
  m.impl("convolution_overrideable", TORCH_FN(convolve));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_gradients));
}

}  // namespace

void install_test_device() {
  TestDeviceMemory::install();
  install_test_guard();
}

at::Tensor kernel_view(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kType) return tensor;
  const auto options = at::TensorOptions(tensor.scalar_type());
  if (tensor.numel() == 0) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  }
  return at::from_blob(
      DevicePages::instance().host_view(tensor.const_data_ptr()),
      tensor.sizes(), tensor.strides(), options);
}

at::Tensor reachable(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.device().type() == kType &&
      TestGraph::capturing() == nullptr) {
    TestStreams::instance().finish(current_stream(tensor.device()));
  }
  return kernel_view(tensor);
}

}  // namespace headroom
