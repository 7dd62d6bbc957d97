#include "parallel/pipeline/executor.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/pipeline/received_map.h"

namespace headroom {
namespace {

using Kind = Instruction::Kind;
using torch::autograd::Edge;

// What a micro-batch leaves for its backward, beside autograd's graph. Edges
// instead of tensors: a map that nothing saved is let go once it is sent.
struct Held {
  std::vector<Edge> outputs;  // invalid where no gradient is wanted
  std::vector<std::shared_ptr<MapGradient>> received;
  at::Tensor loss;  // on the last stage
};

class Step {
 public:
  Step(Mailbox& mailbox, const StageRoutes& routes, bool is_last_stage,
       StageWork& work)
      : mailbox_(mailbox),
        routes_(routes),
        is_last_stage_(is_last_stage),
        work_(work) {}

  void run() {
    const size_t count = mailbox_.list().size();
    for (; current_ < count; ++current_) {
      mailbox_.post_receives(current_);
      if (instruction().kind == Kind::kForward)
        forward();
      else
        backward();
    }
  }

  // In place of the instruction that failed and of those after it.
  void complete() {
    held_.clear();
    for (; current_ < mailbox_.list().size(); ++current_) {
      mailbox_.complete_receives(current_);
      work_.complete(instruction());
      mailbox_.complete_sends(current_);
    }
  }

 private:
  const Instruction& instruction() const {
    return mailbox_.list()[current_].instruction;
  }

  void post_next_receives() {
    if (current_ + 1 < mailbox_.list().size())
      mailbox_.post_receives(current_ + 1);
  }

  void forward() {
    Held held;
    std::vector<at::Tensor> maps;
    for (size_t i = 0; i < routes_.received.size(); ++i) {
      held.received.push_back(std::make_shared<MapGradient>());
      maps.push_back(
          received_map(mailbox_.take(current_, i), held.received.back()));
    }
    post_next_receives();
    const int64_t micro_batch = instruction().micro_batch;
    std::vector<at::Tensor> outputs =
        work_.forward(micro_batch, std::move(maps));
    check(outputs);
    for (const at::Tensor& output : outputs)
      held.outputs.push_back(output.requires_grad()
                                 ? torch::autograd::impl::gradient_edge(output)
                                 : Edge());
    if (is_last_stage_) {
      held.loss = outputs.front();
    } else {
      send(outputs);
    }
    held_[micro_batch] = std::move(held);
  }

  void check(const std::vector<at::Tensor>& outputs) {
    const size_t expected = is_last_stage_ ? 1 : routes_.sent.size();
    HEADROOM_CHECK(outputs.size() == expected, std::to_string(outputs.size()) +
                                                   " outputs of a stage of " +
                                                   std::to_string(expected));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::vector<int64_t> sizes =
          is_last_stage_
              ? std::vector<int64_t>{}
              : work_.map_sizes(instruction().micro_batch, routes_.sent[i].row);
      HEADROOM_CHECK(outputs[i].sizes() == at::IntArrayRef(sizes),
                     c10::str("output ", i, " is ", outputs[i].sizes(),
                              ", expected ", at::IntArrayRef(sizes)));
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
    std::vector<at::Tensor> gradients = take_gradients(micro_batch);
    post_next_receives();
    work_.before_backward(micro_batch, current_ + 1 == mailbox_.list().size());
    Held& held = held_.at(micro_batch);
    std::vector<Edge> roots;
    std::vector<at::Tensor> wanted;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!held.outputs[i].is_valid()) continue;
      roots.push_back(std::move(held.outputs[i]));
      wanted.push_back(std::move(gradients[i]));
    }
    if (!roots.empty())
      torch::autograd::Engine::get_default_engine().execute(
          roots, wanted, /*keep_graph=*/false, /*create_graph=*/false,
          /*accumulate_grad=*/true);
    // The graph and its memory go with the roots, before gradients are sent.
    roots.clear();
    wanted.clear();
    const std::vector<std::shared_ptr<MapGradient>> received =
        std::move(held.received);
    held_.erase(micro_batch);
    for (size_t i = 0; i < received.size(); ++i)
      mailbox_.send(current_, i, gradient_to_send(*received[i], i));
  }

  // Of each output, summed over its readers in stage order.
  std::vector<at::Tensor> take_gradients(int64_t micro_batch) {
    if (is_last_stage_) return {at::ones_like(held_.at(micro_batch).loss)};
    std::vector<at::Tensor> gradients;
    size_t position = 0;
    for (const SentMap& map : routes_.sent) {
      at::Tensor sum = mailbox_.take(current_, position++);
      for (size_t reader = 1; reader < map.to.size(); ++reader)
        sum.add_(mailbox_.take(current_, position++));
      gradients.push_back(std::move(sum));
    }
    return gradients;
  }

  at::Tensor gradient_to_send(MapGradient& gradient, size_t i) {
    // Everything that reads the map may be frozen or without gradient.
    if (!gradient.value.defined()) {
      const std::vector<int64_t> sizes =
          work_.map_sizes(instruction().micro_batch, routes_.received[i].row);
      return at::zeros(sizes, mailbox_.map_options());
    }
    const at::Tensor value = std::move(gradient.value);
    return value.contiguous(map_format(value.sizes()));
  }

  Mailbox& mailbox_;
  const StageRoutes& routes_;
  const bool is_last_stage_;
  StageWork& work_;
  size_t current_ = 0;            // instruction
  std::map<int64_t, Held> held_;  // by micro-batch
};

}  // namespace

PipelineExecutor::PipelineExecutor(Communicator& stages, PipelineSchedule kind,
                                   StageRoutes routes,
                                   const at::TensorOptions& map_options)
    : stages_(stages),
      kind_(kind),
      routes_(std::move(routes)),
      map_options_(map_options) {}

void PipelineExecutor::run(int64_t num_micro_batches, StageWork& work) {
  const int stage = stages_.rank();
  const int num_stages = stages_.size();
  Mailbox mailbox(
      stages_,
      step_messages(kind_, num_stages, num_micro_batches, stage, routes_),
      [&work](int64_t micro_batch, int row) {
        return work.map_sizes(micro_batch, row);
      },
      map_options_, buffers_);
  Step step(mailbox, routes_, stage == num_stages - 1, work);
  std::exception_ptr failure;
  try {
    step.run();
  } catch (const c10::OutOfMemoryError&) {
    failure = std::current_exception();
  }
  if (failure) step.complete();
  mailbox.wait_for_sends();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace headroom
