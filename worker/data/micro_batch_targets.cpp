#include "worker/data/micro_batch_targets.h"

namespace headroom {

std::vector<LabelRow> labels_of(const Batch& batch, const SampleRange& part) {
  std::vector<LabelRow> rows;
  for (const LabelRow& row : batch.labels) {
    const int64_t sample = row.image + batch.local_begin;
    if (sample < part.begin || sample >= part.end) continue;
    rows.push_back(row);
    rows.back().image = sample - part.begin;
  }
  return rows;
}

void assign_micro_batches(Batch& batch, const AssignTargets& assign) {
  if (!assign) return;
  for (const SampleRange& part : batch.micro_batches) {
    batch.targets.push_back(
        assign(labels_of(batch, part), batch.image_height, batch.image_width));
  }
}

}  // namespace headroom
