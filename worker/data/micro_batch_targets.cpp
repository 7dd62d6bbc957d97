#include "worker/data/micro_batch_targets.h"

namespace headroom {

void assign_micro_batches(Batch& batch, const AssignTargets& assign) {
  if (!assign) return;
  size_t next = 0;
  for (const SampleRange part : batch.micro_batches) {
    std::vector<LabelRow> rows;
    for (; next < batch.labels.size() &&
           batch.labels[next].image + batch.local_begin < part.end;
         ++next) {
      rows.push_back(batch.labels[next]);
      rows.back().image += batch.local_begin - part.begin;
    }
    batch.targets.push_back(
        assign(rows, batch.image_height, batch.image_width));
  }
}

}  // namespace headroom
