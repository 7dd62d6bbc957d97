#include "worker/step/training_data.h"

#include "parallel/base/units.h"

namespace headroom::step {

std::string data_change(const TrainingData& before, const TrainingData& now,
                        int64_t committed, int64_t steps_in_epoch) {
  if (before.images == 0 || before == now) return "";
  if (before.images == now.images) {
    return "the " + counted(now.images, "training image") +
           " of this start or their labels are not those that the run had";
  }
  return "the run had " + counted(before.images, "training image") +
         " and goes on with " + std::to_string(now.images) + ": an epoch is " +
         counted(steps_in_epoch, "step") + " now, and after " +
         std::to_string(committed) + " this is epoch " +
         std::to_string(committed / steps_in_epoch + 1);
}

}  // namespace headroom::step
