#include "parallel/base/memory_category.h"

#include <string>

#include "parallel/base/check.h"

namespace headroom {

const char* name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kOther:
      return "other";
    case MemoryCategory::kParameters:
      return "parameters";
    case MemoryCategory::kGradients:
      return "gradients";
    case MemoryCategory::kOptimizer:
      return "optimizer";
    case MemoryCategory::kAverage:
      return "average";
    case MemoryCategory::kActivations:
      return "activations";
    case MemoryCategory::kCommunication:
      return "communication";
    case MemoryCategory::kLoss:
      return "loss";
    case MemoryCategory::kWorkspace:
      return "workspace";
  }
  HEADROOM_CHECK(
      false, "memory category " + std::to_string(static_cast<int>(category)));
}

}  // namespace headroom
