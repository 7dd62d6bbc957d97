#include "worker/data/micro_batch_targets.h"

#include "parallel/plan/batch_split.h"

namespace headroom {

void assign_micro_batches(Batch& batch, int64_t micro_batch_size,
                          const AssignTargets& assign) {
  if (!assign) return;
  const int64_t height = batch.images.size(1);
  const int64_t width = batch.images.size(2);
  size_t next = 0;
  for (const SampleRange part :
       micro_batches({0, batch.images.size(0)}, micro_batch_size)) {
    std::vector<LabelRow> rows;
    for (; next < batch.labels.size() && batch.labels[next].image < part.end;
         ++next) {
      rows.push_back(batch.labels[next]);
      rows.back().image -= part.begin;
    }
    batch.targets.push_back(assign(rows, height, width));
  }
}

}  // namespace headroom
