#include "tests/support/test_device/operators.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <optional>
#include <tuple>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "tests/support/test_device/device_pages.h"
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/page_locks.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_device_memory.h"
#include "tests/support/test_device/test_graph.h"

namespace headroom {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;

// Of a convolution, beside a share of its maps: no result has this size.
constexpr int64_t kLeastWorkspace = 1037;

// --- the guard -----------------------------------------------------------

thread_local c10::DeviceIndex current = 0;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < deviceCount(), "no test device ", device);
    if (device.has_index()) current = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return TestStreams::instance().current(device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return TestStreams::instance().make(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return TestStreams::instance().exchange(stream);
  }

  using Moment = TestStreams::Moment;
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (*event == nullptr) *event = new Moment;
    *static_cast<Moment*>(*event) = TestStreams::instance().moment(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    TestStreams::instance().wait(stream, *static_cast<Moment*>(event));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr ||
           TestStreams::instance().is_past(*static_cast<Moment*>(event));
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    TestStreams::instance().finish(*static_cast<Moment*>(event));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Moment*>(event);
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return TestDeviceMemory::kDevices;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Autograd asks for these of the accelerator.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return TestDeviceMemory::kDevices;
  }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
};

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
    allocator->copy_data(memory.get(), storage->data(), storage->nbytes());
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

// On a stream beside the first what is copied must stay where it is: CUDA would
// have the host wait for anything else.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target,
                     bool non_blocking) {
  count_launch("copy");
  const c10::Device device =
      target.device().type() == kType ? target.device() : source.device();
  const c10::Stream stream = TestStreams::instance().current(device);
  TORCH_CHECK(stream.id() == 0 || !non_blocking || !source.is_cpu() ||
                  is_page_locked(source.const_data_ptr()),
              "a copy beside the first stream from pages that may move");
  if (stream.id() == 0) {
    TORCH_CHECK(TestGraph::capturing() == nullptr || source.device() == device,
                "a copy from the host cannot be captured");
    TORCH_CHECK(TestGraph::capturing() == nullptr || target.device() == device,
                "a copy to the host cannot be captured");
    do_or_remember([from = reachable(source), to = reachable(target)] {
      copy_bytes(from, to);
    });
    return target;
  }
  // What is copied later is kept by nobody.
  const at::Tensor from =
      source.is_cpu() ? at::from_blob(source.data_ptr(), source.sizes(),
                                      source.strides(), source.options())
                      : reachable(source);
  TestStreams::instance().give(
      stream, [from, to = reachable(target)] { copy_bytes(from, to); });
  return target;
}

// A CPU result as a tensor of the device.
at::Tensor placed(const at::Tensor& result, c10::Device device) {
  if (!result.defined()) return result;
  at::Tensor tensor = empty_with_strides(result.sizes(), result.strides(),
                                         result.scalar_type(), {}, device, {});
  copy_bytes(result, reachable(tensor));
  return tensor;
}

// What `compute` gives, on the device; of a graph, whenever it is replayed.
template <typename Compute>
at::Tensor placed_by(const Compute& compute, c10::Device device) {
  const at::Tensor result = placed(compute(), device);
  if (TestGraph* const graph = TestGraph::capturing()) {
    graph->remember(
        [compute, to = reachable(result)] { copy_bytes(compute(), to); });
  }
  return result;
}

// --- operators -----------------------------------------------------------

// One call of an operator: the device's tensors among its arguments, and what
// stands in for them.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : schema_(op.schema()),
        stack_(stack),
        begin_(stack.size() - schema_.arguments().size()),
        given_(schema_.arguments().size()),
        stand_ins_(schema_.arguments().size()) {}

  void replace_arguments() {
    for (size_t i = 0; i < given_.size(); ++i) {
      c10::IValue& value = stack_[begin_ + i];
      if (value.isTensor()) {
        given_[i] = value.toTensor();
        stand_ins_[i] = stand_in(given_[i]);
        value = stand_ins_[i];
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& tensor : value.toTensorVector()) {
          list.push_back(stand_in(tensor));
        }
        value = std::move(list);
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& tensor : value.toOptionalTensorVector()) {
          list.push_back(tensor ? std::optional(stand_in(*tensor))
                                : std::nullopt);
        }
        value = std::move(list);
      } else if (value.isDevice() && value.toDevice().type() == kType) {
        device_ = value.toDevice();
        value = c10::Device(c10::kCPU);
      }
    }
    TORCH_CHECK(!host_tensor_.defined() || !device_, schema_.name(),
                ": a tensor of the host among those of ", *device_);
  }

  // With stand-ins; numbers of the host are what they are now.
  torch::jit::Stack arguments() const {
    torch::jit::Stack copy(
        stack_.end() - static_cast<std::ptrdiff_t>(schema_.arguments().size()),
        stack_.end());
    for (size_t i = 0; i < copy.size(); ++i) {
      if (given_[i].defined() && given_[i].is_cpu()) {
        copy[i] = given_[i].clone();
      }
    }
    return copy;
  }

  // Stand-ins of what the operator writes to.
  std::vector<at::Tensor> written_tensors() const {
    std::vector<at::Tensor> written;
    for (size_t i = 0; i < given_.size(); ++i) {
      const c10::AliasInfo* const alias = schema_.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite() && stand_ins_[i].defined()) {
        written.push_back(stand_ins_[i]);
      }
    }
    return written;
  }

  // After replace_results(): where results that alias nothing lie, by return;
  // undefined: that one is a view, or was written to.
  std::vector<at::Tensor> new_results() const {
    const size_t first = stack_.size() - schema_.returns().size();
    std::vector<at::Tensor> made;
    for (size_t i = 0; i < schema_.returns().size(); ++i) {
      const c10::IValue& value = stack_[first + i];
      TORCH_CHECK(value.isTensor(), schema_.name(),
                  ": what the host waits for cannot be captured");
      const bool is_new = schema_.returns()[i].alias_info() == nullptr;
      made.push_back(is_new ? reachable(value.toTensor()) : at::Tensor());
    }
    return made;
  }

  void replace_results() {
    const size_t first = stack_.size() - schema_.returns().size();
    for (size_t i = 0; i < schema_.returns().size(); ++i) {
      c10::IValue& value = stack_[first + i];
      if (value.isTensor()) {
        value = result(value.toTensor(), schema_.returns()[i].alias_info());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& tensor : value.toTensorVector()) {
          list.push_back(result(tensor, schema_.returns()[i].alias_info()));
        }
        value = std::move(list);
      }
    }
  }

 private:
  at::Tensor stand_in(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (tensor.device().type() == kType) {
      device_ = tensor.device();
    } else if (tensor.dim() > 0) {
      host_tensor_ = tensor;
    }
    return reachable(tensor);
  }

  at::Tensor result(const at::Tensor& tensor, const c10::AliasInfo* alias) {
    if (alias == nullptr) return placed(tensor, *device_);
    for (size_t i = 0; i < given_.size(); ++i) {
      const c10::AliasInfo* const of = schema_.arguments()[i].alias_info();
      if (of == nullptr || of->beforeSets() != alias->beforeSets()) continue;
      return alias->isWrite() ? written(i) : viewed(i, tensor);
    }
    TORCH_CHECK(false, schema_.name(), ": an alias of nothing");
  }

  // An empty tensor may have been made larger.
  const at::Tensor& written(size_t i) {
    if (!given_[i].sizes().equals(stand_ins_[i].sizes())) {
      resize_storage(given_[i], stand_ins_[i].sizes(), std::nullopt);
      copy_bytes(stand_ins_[i], reachable(given_[i]));
    }
    return given_[i];
  }

  at::Tensor viewed(size_t i, const at::Tensor& view) {
    const auto from = static_cast<const char*>(stand_ins_[i].const_data_ptr());
    const auto to = static_cast<const char*>(view.const_data_ptr());
    return at::native::as_strided_tensorimpl(
        given_[i], view.sizes(), view.strides(),
        given_[i].storage_offset() +
            (to - from) / static_cast<int64_t>(view.element_size()));
  }

  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  const size_t begin_;
  std::vector<at::Tensor> given_, stand_ins_;
  at::Tensor host_tensor_;
  std::optional<c10::Device> device_;
};

void call_on_host(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const activations::CountingAllocator::HostMemory not_counted;
  op.callBoxed(&stack);
}

// What the call writes is as before it once it has been captured.
void capture(const c10::OperatorHandle& op, torch::jit::Stack& stack,
             Call& call, TestGraph& graph) {
  const torch::jit::Stack arguments = call.arguments();
  const std::vector<at::Tensor> written = call.written_tensors();
  std::vector<at::Tensor> before;
  {
    const activations::CountingAllocator::HostMemory not_counted;
    for (const at::Tensor& tensor : written) before.push_back(tensor.clone());
  }
  call_on_host(op, stack);
  call.replace_results();
  const std::vector<at::Tensor> made = call.new_results();
  for (size_t i = 0; i < written.size(); ++i) {
    TORCH_CHECK(before[i].sizes().equals(written[i].sizes()),
                op.schema().name(), ": a tensor that grows cannot be captured");
    copy_bytes(before[i], written[i]);
  }
  graph.remember([op, arguments, made] {
    torch::jit::Stack again = arguments;
    call_on_host(op, again);
    size_t next = 0;
    for (const at::Tensor& to : made) {
      if (to.defined()) copy_bytes(again[next].toTensor(), to);
      ++next;
    }
  });
}

// Results that share memory with what they are made of, and are not written to,
// are views: nothing is launched for them.
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
  call.replace_arguments();
  if (TestGraph* const graph = TestGraph::capturing()) {
    return capture(op, *stack, call, *graph);
  }
  call_on_host(op, *stack);
  call.replace_results();
}

// As cuDNN does: taken once the result is there, and given back.
void take_workspace(int64_t bytes, c10::Device device) {
  empty({bytes}, at::kByte, {}, device, {}, {});
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight,
                    const std::optional<at::Tensor>& bias,
                    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                    c10::SymIntArrayRef dilation, bool transposed,
                    c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  count_launch("convolution");
  const at::Tensor none;
  at::Tensor y = placed_by(
      [x = reachable(x), weight = reachable(weight),
       bias = reachable(bias ? *bias : none), stride = stride.vec(),
       padding = padding.vec(), dilation = dilation.vec(), transposed,
       output_padding = output_padding.vec(), groups] {
        const at::AutoDispatchBelowADInplaceOrView below;
        const activations::CountingAllocator::HostMemory not_counted;
        return at::convolution_symint(
            x, weight, bias.defined() ? std::optional(bias) : std::nullopt,
            stride, padding, dilation, transposed, output_padding, groups);
      },
      x.device());
  take_workspace(static_cast<int64_t>(x.nbytes()) / 2 + kLeastWorkspace,
                 x.device());
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_gradients(
    const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation, bool transposed,
    c10::SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> wanted) {
  using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  const auto compute = [dy = reachable(dy), x = reachable(x),
                        weight = reachable(weight), stride = stride.vec(),
                        padding = padding.vec(), dilation = dilation.vec(),
                        transposed, output_padding = output_padding.vec(),
                        groups, wanted]() -> Gradients {
    const at::AutoDispatchBelowADInplaceOrView below;
    const activations::CountingAllocator::HostMemory not_counted;
    const std::vector<c10::SymInt> bias = {weight.sym_size(0)};
    return at::convolution_backward_symint(
        dy, x, weight, c10::SymIntArrayRef(bias), stride, padding, dilation,
        transposed, output_padding, groups, wanted);
  };
  count_launch("convolution_backward", wanted[0] + wanted[1] + wanted[2]);
  const Gradients host = compute();
  const auto place = [&](const at::Tensor& tensor, int64_t workspace) {
    at::Tensor result = placed(tensor, x.device());
    if (tensor.defined())
      take_workspace(workspace + kLeastWorkspace, x.device());
    return result;
  };
  at::Tensor dx =
      place(std::get<0>(host), static_cast<int64_t>(dy.nbytes()) / 2);
  at::Tensor dweight =
      place(std::get<1>(host), static_cast<int64_t>(x.nbytes()) / 4);
  const Gradients on_device = {std::move(dx), std::move(dweight),
                               placed(std::get<2>(host), x.device())};
  if (TestGraph* const graph = TestGraph::capturing()) {
    const auto to = std::apply(
        [](const auto&... tensor) { return Gradients{reachable(tensor)...}; },
        on_device);
    graph->remember([compute, to] {
      const Gradients again = compute();
      const auto copy = [](const at::Tensor& from, const at::Tensor& into) {
        if (into.defined()) copy_bytes(from, into);
      };
      copy(std::get<0>(again), std::get<0>(to));
      copy(std::get<1>(again), std::get<1>(to));
      copy(std::get<2>(again), std::get<2>(to));
    });
  }
  return on_device;
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
  static const bool registered = [] {
    c10::register_privateuse1_backend("testdevice");
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    return true;
  }();
  static_cast<void>(registered);
}

at::Tensor reachable(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kType) return tensor;
  const auto options = at::TensorOptions(tensor.scalar_type());
  if (tensor.numel() == 0) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  }
  return at::from_blob(
      DevicePages::instance().host_view(tensor.const_data_ptr()),
      tensor.sizes(), tensor.strides(), options);
}

}  // namespace headroom
