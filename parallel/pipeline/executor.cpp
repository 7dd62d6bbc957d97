#include "parallel/pipeline/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "parallel/pipeline/mailbox.h"

namespace headroom::pipeline {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using GradientPointer = std::shared_ptr<MapGradient>;

struct GradientHolder final : torch::CustomClassHolder {
  explicit GradientHolder(GradientPointer to) : gradient(std::move(to)) {}
  GradientPointer gradient;
};

void keep(AutogradContext* ctx, const GradientPointer& gradient) {
  ctx->saved_data["gradient"] =
      c10::IValue::make_capsule(c10::make_intrusive<GradientHolder>(gradient));
}

MapGradient& kept(AutogradContext* ctx) {
  return *c10::static_intrusive_pointer_cast<GradientHolder>(
              ctx->saved_data["gradient"].toCapsule())
              ->gradient;
}

class ReceivingFunction final
    : public torch::autograd::Function<ReceivingFunction> {
 public:
  // `token` has no elements but requires a gradient, so that autograd records
  // this function.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& token,
                            const at::Tensor& map,
                            const GradientPointer* gradient) {
    static_cast<void>(token);
    keep(ctx, *gradient);
    return map.detach();
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    kept(ctx).value = std::move(gradients[0]);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

class SendingFunction final
    : public torch::autograd::Function<SendingFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& map,
                            const GradientPointer* gradient) {
    keep(ctx, *gradient);
    return at::zeros({}, map.options());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list&) {
    return {std::move(kept(ctx).value), at::Tensor()};
  }
};

}  // namespace

at::Tensor received_map(const at::Tensor& map,
                        std::shared_ptr<MapGradient> gradient) {
  const at::Tensor token =
      at::empty({0}, map.options()).set_requires_grad(true);
  return ReceivingFunction::apply(token, map, &gradient);
}

at::Tensor sent_map(const at::Tensor& map,
                    std::shared_ptr<MapGradient> gradient) {
  if (!map.requires_grad()) return {};
  return SendingFunction::apply(map, &gradient);
}

namespace {

using Kind = Instruction::Kind;
using torch::autograd::Edge;
using torch::autograd::impl::gradient_edge;

// The state of a micro-batch until its backward, apart from autograd's graph.
// It holds edges instead of tensors, so that a map which no operation saved is
// freed once it is sent.
struct Held {
  Edge loss;               // set on the last stage
  std::vector<Edge> sent;  // invalid edge: no gradient is needed
  std::vector<std::shared_ptr<MapGradient>> sent_gradients;
  std::vector<std::shared_ptr<MapGradient>> received_gradients;
};

class Step {
 public:
  Step(Mailbox& mailbox, const StageRoutes& routes, bool is_last_stage,
       bool has_backward, const at::Tensor& one, StageWork& work)
      : mailbox_(mailbox),
        routes_(routes),
        is_last_stage_(is_last_stage),
        has_backward_(has_backward),
        work_(work),
        one_(one) {}

  void run() {
    const size_t count = mailbox_.list().size();
    for (; current_ < count; ++current_) {
      mailbox_.post_receives(current_);
      if (!has_backward_)
        evaluate();
      else if (instruction().kind == Kind::kForward)
        forward();
      else
        backward();
    }
  }

 private:
  const Instruction& instruction() const {
    return mailbox_.list()[current_].instruction;
  }

  void evaluate() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> maps;
    for (size_t i = 0; i < routes_.received.size(); ++i)
      maps.push_back(mailbox_.take(current_, i));
    mailbox_.post_receives(current_ + 1);
    const std::vector<at::Tensor> outputs =
        work_.forward(instruction().micro_batch, std::move(maps));
    check(outputs);
    send(outputs);
    mailbox_.wait_for_sends(current_);
  }

  void forward() {
    Held held;
    std::vector<at::Tensor> maps;
    for (size_t i = 0; i < routes_.received.size(); ++i) {
      held.received_gradients.push_back(std::make_shared<MapGradient>());
      maps.push_back(received_map(mailbox_.take(current_, i),
                                  held.received_gradients.back()));
    }
    mailbox_.post_receives(current_ + 1);
    const int64_t micro_batch = instruction().micro_batch;
    const std::vector<at::Tensor> outputs =
        work_.forward(micro_batch, std::move(maps));
    check(outputs);
    if (is_last_stage_) {
      if (outputs.front().requires_grad())
        held.loss = gradient_edge(outputs.front());
    } else {
      hold_ends(outputs, held);
      send(outputs);
    }
    held_[micro_batch] = std::move(held);
  }

  void check(const std::vector<at::Tensor>& outputs) {
    const size_t num_losses = has_backward_ ? 1 : 0;
    const size_t expected = is_last_stage_ ? num_losses : routes_.sent.size();
    HEADROOM_CHECK(outputs.size() == expected,
                   cat(outputs.size(), " outputs of a stage of ", expected));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::vector<int64_t> sizes =
          is_last_stage_ ? std::vector<int64_t>{}
                         : work_.map_sizes(instruction().micro_batch,
                                           routes_.sent[i].layer);
      HEADROOM_CHECK(outputs[i].sizes() == at::IntArrayRef(sizes),
                     c10::str("output ", i, " is ", outputs[i].sizes(),
                              ", expected ", at::IntArrayRef(sizes)));
    }
  }

  void hold_ends(const std::vector<at::Tensor>& outputs, Held& held) {
    for (const at::Tensor& output : outputs) {
      held.sent_gradients.push_back(std::make_shared<MapGradient>());
      const at::Tensor end = sent_map(output, held.sent_gradients.back());
      held.sent.push_back(end.defined() ? gradient_edge(end) : Edge());
    }
  }

  void send(const std::vector<at::Tensor>& outputs) {
    size_t position = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const at::Tensor map =
          outputs[i].detach().contiguous(map_format(outputs[i].sizes()));
      for (size_t reader = 0; reader < routes_.sent[i].to.size(); ++reader)
        mailbox_.send(current_, position++, map);
    }
  }

  void backward() {
    const int64_t micro_batch = instruction().micro_batch;
    Held held = std::move(held_.at(micro_batch));
    held_.erase(micro_batch);
    take_gradients(held);
    mailbox_.post_receives(current_ + 1);
    const bool is_last = current_ + 1 == mailbox_.list().size();
    work_.before_backward(micro_batch, is_last);
    run_backward(held);
    for (size_t i = 0; i < held.received_gradients.size(); ++i)
      mailbox_.send(current_, i,
                    gradient_to_send(*held.received_gradients[i], i));
  }

  // Receives the gradients of each sent map and sums them over its readers in
  // stage order.
  void take_gradients(const Held& held) {
    size_t position = 0;
    for (size_t i = 0; i < routes_.sent.size(); ++i) {
      at::Tensor sum = mailbox_.take(current_, position++);
      for (size_t reader = 1; reader < routes_.sent[i].to.size(); ++reader)
        sum.add_(mailbox_.take(current_, position++));
      held.sent_gradients[i]->value = std::move(sum);
    }
  }

  // Frees the graph and its saved tensors, because this backward takes the
  // graph's only roots.
  void run_backward(Held& held) {
    std::vector<Edge> roots = std::move(held.sent);
    if (is_last_stage_) roots.push_back(std::move(held.loss));
    std::erase_if(roots, [](const Edge& root) { return !root.is_valid(); });
    if (roots.empty()) return;
    const std::vector<at::Tensor> ones(roots.size(), one_);
    const BackwardOnThisThread here(one_.is_cpu());
    torch::autograd::Engine::get_default_engine().execute(
        roots, ones, /*keep_graph=*/false, /*create_graph=*/false,
        /*accumulate_grad=*/true);
  }

  at::Tensor gradient_to_send(MapGradient& gradient, size_t i) {
    // Undefined if no operation that reads the map needs its gradient: send 0.
    if (!gradient.value.defined()) {
      const std::vector<int64_t> sizes =
          work_.map_sizes(instruction().micro_batch, routes_.received[i].layer);
      return at::zeros(sizes, mailbox_.map_options());
    }
    const at::Tensor value = std::move(gradient.value);
    return value.contiguous(map_format(value.sizes()));
  }

  Mailbox& mailbox_;
  const StageRoutes& routes_;
  const bool is_last_stage_;
  const bool has_backward_;
  StageWork& work_;
  const at::Tensor& one_;         // gradient of each root
  size_t current_ = 0;            // index of the current instruction
  std::map<int64_t, Held> held_;  // by micro-batch
};

}  // namespace

PipelineExecutor::PipelineExecutor(collectives::Communicator& stages,
                                   PipelineSchedule kind, StageRoutes routes,
                                   const at::TensorOptions& map_options)
    : stages_(stages),
      kind_(kind),
      routes_(std::move(routes)),
      map_options_(map_options),
      one_(at::ones({}, map_options)) {}

void PipelineExecutor::run(int64_t num_micro_batches, StageWork& work) {
  const MemoryCategoryScope maps(MemoryCategory::kActivations);
  const int stage = stages_.rank();
  const int num_stages = stages_.size();
  Mailbox mailbox(
      stages_,
      step_messages(kind_, num_stages, num_micro_batches, stage, routes_),
      [&work](int64_t micro_batch, int layer) {
        return work.map_sizes(micro_batch, layer);
      },
      map_options_);
  Step step(mailbox, routes_, stage == num_stages - 1,
            kind_ != PipelineSchedule::kForwardOnly, one_, work);
  step.run();
  mailbox.wait_for_sends(mailbox.list().size());
}

}  // namespace headroom::pipeline
