#include "worker/optim/optimizer.h"

#include "parallel/base/check.h"
#include "worker/optim/adam.h"
#include "worker/optim/sgd.h"

namespace headroom::optim {

OptimizerKind parse_optimizer(const std::string& name) {
  if (name == "SGD") return OptimizerKind::kSgd;
  if (name == "Adam") return OptimizerKind::kAdam;
  if (name == "AdamW") return OptimizerKind::kAdamW;
  throw Error("config", "--optimizer " + name + " is not known",
              "use SGD, Adam or AdamW");
}

std::vector<std::string> moment_names(OptimizerKind kind) {
  if (kind == OptimizerKind::kSgd) return {"momentum"};
  return {"first_moment", "second_moment"};
}

void optimizer_step(OptimizerKind kind, const OptimizerStep& step,
                    const at::Tensor& parameters, const at::Tensor& gradients,
                    std::span<const at::Tensor> moments,
                    std::span<const Segment> segments) {
  HEADROOM_CHECK(moments.size() == moment_names(kind).size(),
                 std::to_string(moments.size()) + " moments");
  if (kind == OptimizerKind::kSgd) {
    sgd_step(parameters, gradients, moments[0], segments, step.groups,
             step.momentum, step.clip_coefficient, step.step == 1);
    return;
  }
  adam_step(parameters, gradients, moments[0], moments[1], segments,
            step.groups,
            {step.momentum, step.step, step.clip_coefficient,
             kind == OptimizerKind::kAdamW});
}

}  // namespace headroom::optim
