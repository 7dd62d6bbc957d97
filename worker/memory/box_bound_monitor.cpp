#include "worker/memory/box_bound_monitor.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "worker/data/loader/loader_options.h"

namespace headroom::memory {

BoxBoundMonitor::BoxBoundMonitor(predict::LabelBound labels)
    : labels_(std::move(labels)) {}

std::optional<StepEvent> BoxBoundMonitor::look_at(const loader::Batch& batch) {
  std::optional<StepEvent> event;
  for (const plan::SampleRange& part : batch.micro_batches) {
    const auto boxes =
        static_cast<int64_t>(loader::labels_of(batch, part).size());
    const int64_t bound = predict::most_boxes(labels_, part.size()).boxes;
    if (boxes - bound <= most_beyond_) continue;
    most_beyond_ = boxes - bound;
    const nlohmann::ordered_json detail = {
        {"samples", part.size()}, {"boxes", boxes}, {"bound", bound}};
    event = StepEvent{"label_bound",
                      "a micro-batch of " + std::to_string(part.size()) +
                          " has " + std::to_string(boxes) +
                          " boxes, and the plan's bytes are for: " +
                          predict::bound_text(labels_, part.size()) +
                          "; what does not fit is tried again, leaner",
                      detail.dump()};
  }
  return event;
}

}  // namespace headroom::memory
