#include "worker/export/folded_block.h"

#include "worker/model/conv_block.h"

namespace headroom::exporter {

FoldedBlock folded_block(const std::map<std::string, at::Tensor>& state,
                         const std::string& prefix) {
  const auto exact = [&](const char* name) {
    return state.at(prefix + name).to(at::kDouble);
  };
  const at::Tensor scale =
      exact("bn.weight")
          .div(exact("bn.running_var").add(model::kBatchNormEpsilon).sqrt());
  return {exact("conv.weight").mul(scale.view({-1, 1, 1, 1})),
          exact("bn.bias").sub(exact("bn.running_mean").mul(scale))};
}

}  // namespace headroom::exporter
