#include "worker/model/row.h"

#include <string>

#include "parallel/base/check.h"

namespace headroom {

std::vector<at::Tensor> MapRow::forward(const std::vector<at::Tensor>& inputs,
                                        const StepContext& context) {
  HEADROOM_CHECK(inputs.size() == 1,
                 std::to_string(inputs.size()) + " inputs to a row of one");
  return {apply(inputs.front(), context)};
}

}  // namespace headroom
