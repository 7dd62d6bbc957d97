#include "worker/validation/validation_parts.h"

#include "worker/data/loader/loader_options.h"

namespace headroom::validation {

loss::GlobalCounts counts_of(const loader::Batch& batch) {
  loss::GlobalCounts counts{batch.images.size(0), {}};
  counts.matches.resize(batch.targets.front().size());
  for (const std::vector<loss::LevelTargets>& part : batch.targets) {
    for (size_t level = 0; level < part.size(); ++level) {
      counts.matches[level] += part[level].size();
    }
  }
  return counts;
}

std::vector<loader::Batch> parts_of(const loader::Batch& batch) {
  std::vector<loader::Batch> parts;
  for (size_t i = 0; i < batch.micro_batches.size(); ++i) {
    const plan::SampleRange& range = batch.micro_batches[i];
    loader::Batch part;
    part.global_size = range.size();
    part.micro_batches = {{0, range.size()}};
    part.images = batch.images.narrow(0, range.begin, range.size());
    part.image_height = batch.image_height;
    part.image_width = batch.image_width;
    part.labels = loader::labels_of(batch, range);
    part.samples.assign(batch.samples.begin() + range.begin,
                        batch.samples.begin() + range.end);
    part.geometry.assign(batch.geometry.begin() + range.begin,
                         batch.geometry.begin() + range.end);
    part.targets = {batch.targets[i]};
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace headroom::validation
