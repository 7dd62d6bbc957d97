#include "worker/step/cuda_graph_runner.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "parallel/devices/device_api.h"
#include "parallel/pipeline/executor.h"
#include "worker/model/saved_pointer.h"

namespace headroom::step {

using torch::autograd::AutogradContext;
using torch::autograd::Edge;
using torch::autograd::variable_list;

// Order matters: the tensors go before the graphs whose memory they lie in.
struct CudaGraphRunner::Graphs {
  explicit Graphs(devices::DeviceMemory& account) : memory(account) {}
  ~Graphs() { memory.let_go(this); }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  devices::DeviceMemory& memory;
  std::unique_ptr<devices::DeviceGraph> forward, backward;
  at::Tensor images;
  std::vector<at::Tensor> heads, gradients;
};

namespace {

// Ends with its scope, so that a failure leaves no capture behind.
class Capture {
 public:
  Capture(devices::DeviceGraph& graph, devices::DeviceGraph* before)
      : graph_(graph) {
    graph_.begin_capture(before);
  }
  ~Capture() {
    if (ended_) return;
    try {
      graph_.end_capture();
    } catch (const std::exception&) {
      // What failed inside is on its way already.
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  void end() {
    ended_ = true;
    graph_.end_capture();
  }

 private:
  devices::DeviceGraph& graph_;
  bool ended_ = false;
};

class Replay : public torch::autograd::Function<Replay> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               CudaGraphRunner::Graphs* graphs) {
    ctx->saved_data["graphs"] = model::save_pointer(graphs);
    graphs->forward->replay();
    variable_list heads;
    for (const at::Tensor& head : graphs->heads) heads.push_back(head.detach());
    return heads;
  }

  static variable_list backward(AutogradContext* ctx,
                                const variable_list& by_heads) {
    auto* const graphs = model::saved_pointer<CudaGraphRunner::Graphs>(
        ctx->saved_data["graphs"]);
    for (size_t i = 0; i < by_heads.size(); ++i) {
      if (by_heads[i].defined()) {
        graphs->gradients[i].copy_(by_heads[i]);
      } else {
        graphs->gradients[i].zero_();
      }
    }
    graphs->backward->replay();
    return {at::Tensor(), at::Tensor()};
  }
};

std::vector<int64_t> shape_of(const at::Tensor& images,
                              const std::vector<BatchNormGroup>& groups) {
  std::vector<int64_t> shape = images.sizes().vec();
  for (const BatchNormGroup& group : groups) {
    shape.insert(shape.end(),
                 {group.local_begin, group.local_end, group.global_samples,
                  group.counts_here ? 1 : 0});
  }
  return shape;
}

// Groups of several sizes are told to the device as numbers of the host; sums
// are exchanged through it.
bool can_be_captured(const model::StepContext& context) {
  return context.exchange == nullptr && context.halo == nullptr &&
         std::ranges::adjacent_find(context.groups, std::ranges::not_equal_to(),
                                    &BatchNormGroup::global_samples) ==
             context.groups.end();
}

}  // namespace

CudaGraphRunner::CudaGraphRunner(const devices::ComputeDevice& device)
    : device_(device),
      anchor_(at::zeros({}, device.options(at::kFloat)).requires_grad_()) {
  device_.api()->leave_default_stream(device_.device().index());
}

CudaGraphRunner::~CudaGraphRunner() = default;

void CudaGraphRunner::release() {
  graphs_.reset();
  shape_.clear();
  runs_ = 0;
}

std::vector<at::Tensor> CudaGraphRunner::run(at::Tensor images,
                                             const model::StepContext& context,
                                             const RunLayers& layers) {
  const std::vector<int64_t> shape = shape_of(images, context.groups);
  if (shape != shape_) release();
  shape_ = shape;
  if (graphs_ == nullptr) {
    if (runs_++ < kWarmUps || !can_be_captured(context)) return layers(images);
    capture(images, layers);
  }
  graphs_->images.copy_(images);
  images.reset();
  return Replay::apply(anchor_, graphs_.get());
}

void CudaGraphRunner::capture(const at::Tensor& images,
                              const RunLayers& layers) {
  devices::DeviceApi& api = *device_.api();
  const int index = device_.device().index();
  devices::DeviceMemory& memory = api.memory(index);
  memory.release_caches();
  peak_before_capture_ = std::max(peak_before_capture_, memory.peak_bytes());
  memory.reset_peak();
  auto graphs = std::make_unique<Graphs>(memory);
  graphs->forward = api.make_graph(index);
  graphs->backward = api.make_graph(index);
  graphs->images = at::empty_like(images);
  std::vector<Edge> roots;
  {
    Capture forward(*graphs->forward, nullptr);
    for (const at::Tensor& head : layers(graphs->images)) {
      graphs->heads.push_back(head.detach());
      roots.push_back(torch::autograd::impl::gradient_edge(head));
    }
    forward.end();
  }
  for (const at::Tensor& head : graphs->heads) {
    graphs->gradients.push_back(at::zeros_like(head));
  }
  {
    Capture backward(*graphs->backward, graphs->forward.get());
    const pipeline::BackwardOnThisThread here(/*is_cpu=*/false);
    torch::autograd::Engine::get_default_engine().execute(
        std::exchange(roots, {}), graphs->gradients, /*keep_graph=*/false,
        /*create_graph=*/false, /*accumulate_grad=*/true);
    backward.end();
  }
  // The graphs keep what they took at their fullest.
  memory.hold(graphs.get(), memory.peak_bytes() - memory.live_bytes());
  graphs_ = std::move(graphs);
  ++num_captures_;
}

}  // namespace headroom::step
