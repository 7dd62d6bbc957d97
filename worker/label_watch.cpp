#include "worker/label_watch.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "worker/data/micro_batch_targets.h"

namespace headroom {

LabelWatch::LabelWatch(LabelBound labels) : labels_(std::move(labels)) {}

std::optional<StepEvent> LabelWatch::look_at(const Batch& batch) {
  std::optional<StepEvent> event;
  for (const SampleRange& part : batch.micro_batches) {
    const auto boxes = static_cast<int64_t>(labels_of(batch, part).size());
    const int64_t bound = most_boxes(labels_, part.size()).boxes;
    if (boxes - bound <= most_beyond_) continue;
    most_beyond_ = boxes - bound;
    const nlohmann::ordered_json detail = {
        {"samples", part.size()}, {"boxes", boxes}, {"bound", bound}};
    event = StepEvent{"label_bound",
                      "a micro-batch of " + std::to_string(part.size()) +
                          " has " + std::to_string(boxes) +
                          " boxes, and the plan's bytes are for: " +
                          bound_text(labels_, part.size()) +
                          "; what does not fit is tried again, leaner",
                      detail.dump()};
  }
  return event;
}

}  // namespace headroom
