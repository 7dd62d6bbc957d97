#include "worker/step/cuda_graph_runner.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "parallel/devices/device_api.h"
#include "parallel/pipeline/executor.h"
#include "worker/model/saved_pointer.h"

namespace headroom::step {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Order matters: the tensors are freed before the graph that owns their memory.
struct CudaGraphRunner::Graph {
  Graph(devices::DeviceMemory& account, bool& has_ended)
      : memory(account), has_ended_step(has_ended) {}
  ~Graph() { memory.let_go(this); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  devices::DeviceMemory& memory;
  bool& has_ended_step;  // CudaGraphRunner::has_ended_step_
  std::unique_ptr<devices::DeviceGraph> work;
  MicroBatch inputs;
  at::Tensor total;
};

namespace {

// The destructor ends the capture, also after a failure.
class Capture {
 public:
  explicit Capture(devices::DeviceGraph& graph) : graph_(graph) {
    graph_.begin_capture(/*before=*/nullptr);
  }
  ~Capture() {
    if (!has_ended_) graph_.abandon_capture();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  void end() {
    graph_.end_capture();
    has_ended_ = true;
  }

 private:
  devices::DeviceGraph& graph_;
  bool has_ended_ = false;
};

class Replay : public torch::autograd::Function<Replay> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor&,
                            CudaGraphRunner::Graph* graph) {
    ctx->saved_data["graph"] = model::save_pointer(graph);
    return graph->total.detach();
  }

  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    auto* const graph =
        model::saved_pointer<CudaGraphRunner::Graph>(ctx->saved_data["graph"]);
    graph->work->replay();
    graph->has_ended_step = graph->inputs.ends_step;
    return {at::Tensor(), at::Tensor()};
  }
};

std::vector<int64_t> shape_of(const CudaGraphRunner::MicroBatch& inputs,
                              const std::vector<BatchNormGroup>& groups) {
  std::vector<int64_t> shape = inputs.image_sizes;
  for (const BatchNormGroup& group : groups) {
    shape.insert(shape.end(),
                 {group.local_begin, group.local_end, group.global_samples,
                  group.counts_here ? 1 : 0});
  }
  return shape;
}

// A capture can contain neither an exchange between ranks, nor groups of
// different sizes, whose sizes the host has to read.
bool can_be_captured(const model::StepContext& context) {
  return context.exchange == nullptr && context.halo == nullptr &&
         std::ranges::adjacent_find(context.groups, std::ranges::not_equal_to(),
                                    &BatchNormGroup::global_samples) ==
             context.groups.end();
}

}  // namespace

CudaGraphRunner::CudaGraphRunner(const devices::ComputeDevice& device)
    : device_(device),
      anchor_(at::zeros({}, device.options(at::kFloat)).requires_grad_()),
      one_(at::ones({}, device.options(at::kDouble))) {
  device_.api()->leave_default_stream(device_.device().index());
}

CudaGraphRunner::~CudaGraphRunner() = default;

void CudaGraphRunner::release() {
  prepared_ = {};
  graph_.reset();
  shape_.clear();
  runs_ = 0;
}

CudaGraphRunner::MicroBatch CudaGraphRunner::on_device(
    const MicroBatch& inputs) const {
  MicroBatch copies = inputs;
  copies.images = inputs.map(std::nullopt);
  copies.targets.bytes = device_.upload(inputs.targets.bytes);
  copies.scales = device_.upload(inputs.scales);
  if (inputs.end.defined()) copies.end = device_.upload(inputs.end);
  return copies;
}

// Compares the address of the images: prepared_ keeps their memory alive, so no
// other images can have the same address.
bool CudaGraphRunner::is_prepared(const MicroBatch& inputs) const {
  return prepared_.loaded.defined() &&
         prepared_.loaded.const_data_ptr() == inputs.loaded.const_data_ptr() &&
         at::equal(prepared_.targets, inputs.targets.bytes);
}

void CudaGraphRunner::fill(const MicroBatch& inputs) {
  inputs.map(graph_->inputs.images);
  device_.upload_into(inputs.targets.bytes, graph_->inputs.targets.bytes);
  device_.upload_into(inputs.scales, graph_->inputs.scales);
}

void CudaGraphRunner::prepare(const MicroBatch& inputs,
                              const model::StepContext& context) {
  if (graph_ == nullptr || shape_of(inputs, context.groups) != shape_ ||
      !inputs.targets.is_like(graph_->inputs.targets)) {
    return;
  }
  prepared_ = {};
  fill(inputs);
  prepared_ = {inputs.loaded, inputs.targets.bytes, inputs.scales};
}

at::Tensor CudaGraphRunner::run(MicroBatch inputs,
                                const model::StepContext& context,
                                const Forward& forward, const End& end) {
  const std::vector<int64_t> shape = shape_of(inputs, context.groups);
  if (shape != shape_) release();
  shape_ = shape;
  if (graph_ == nullptr &&
      (has_failed_ || runs_++ < kWarmUps || !can_be_captured(context) ||
       !captures(inputs, forward, end))) {
    return forward(on_device(inputs));
  }
  if (!inputs.targets.is_like(graph_->inputs.targets)) {
    if (!std::exchange(was_overfull_, true)) {
      news_.push_back(
          cat("a micro-batch has more targets than its graph has room for (",
              std::ranges::min(graph_->inputs.targets.capacities),
              "): such ones run as they are"));
    }
    return forward(on_device(inputs));
  }
  const MemoryCategoryScope scope(MemoryCategory::kLoss);
  if (is_prepared(inputs)) {
    inputs.send_following();  // may be copied before the graph is replayed
    if (!at::equal(prepared_.scales, inputs.scales)) {
      device_.upload_into(inputs.scales, graph_->inputs.scales);
    }
  } else {
    fill(inputs);
  }
  prepared_ = {};
  if (inputs.end.defined()) {
    device_.upload_into(inputs.end, graph_->inputs.end);
  }
  graph_->inputs.ends_step = inputs.ends_step;
  return Replay::apply(anchor_, graph_.get());
}

// Throws c10::OutOfMemoryError, which the memory ladder handles. After any
// other failure no capture is tried again.
bool CudaGraphRunner::captures(const MicroBatch& inputs, const Forward& forward,
                               const End& end) {
  try {
    capture(inputs, forward, end);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    has_failed_ = true;
    news_.push_back(
        "a micro-batch could not be captured, and all run as they are from "
        "here on: " +
        std::string(error.what_without_backtrace()));
  }
  device_.api()->memory(device_.device().index()).release_caches();
  return false;
}

void CudaGraphRunner::capture(const MicroBatch& inputs, const Forward& forward,
                              const End& end) {
  devices::DeviceApi& api = *device_.api();
  const int index = device_.device().index();
  devices::DeviceMemory& memory = api.memory(index);
  memory.release_caches();
  peak_before_capture_ = std::max(peak_before_capture_, memory.peak_bytes());
  memory.reset_peak();
  auto graph = std::make_unique<Graph>(memory, has_ended_step_);
  graph->work = api.make_graph(index);
  graph->inputs = on_device(inputs);
  {
    Capture capture(*graph->work);
    const at::Tensor loss = forward(graph->inputs);
    graph->total = loss.detach();
    const pipeline::BackwardOnThisThread here(/*is_cpu=*/false);
    torch::autograd::Engine::get_default_engine().execute(
        {torch::autograd::impl::gradient_edge(loss)}, {one_},
        /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
    if (end != nullptr) end(graph->inputs);
    capture.end();
  }
  // The graph keeps its peak of memory for as long as it exists.
  memory.hold(graph.get(), memory.peak_bytes() - memory.live_bytes());
  graph_ = std::move(graph);
  if (std::exchange(has_captured_, true)) return;
  news_.push_back(
      std::string("a micro-batch is captured, forward, loss") +
      (end == nullptr ? " and backward" : ", backward and commit") +
      ": it is one call of the host's now; captured anew after validations and "
      "checkpoints");
}

}  // namespace headroom::step
