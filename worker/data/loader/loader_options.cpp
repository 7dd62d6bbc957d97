#include "worker/data/loader/loader_options.h"

namespace headroom::loader {

std::vector<loss::LabelRow> labels_of(const Batch& batch,
                                      const plan::SampleRange& part) {
  std::vector<loss::LabelRow> rows;
  for (const loss::LabelRow& row : batch.labels) {
    const int64_t sample = row.image + batch.local_begin;
    if (sample < part.begin || sample >= part.end) continue;
    rows.push_back(row);
    rows.back().image = sample - part.begin;
  }
  return rows;
}

void assign_micro_batches(Batch& batch, const AssignTargets& assign) {
  if (!assign) return;
  for (const plan::SampleRange& part : batch.micro_batches) {
    batch.targets.push_back(
        assign(labels_of(batch, part), batch.image_height, batch.image_width));
  }
}

}  // namespace headroom::loader
