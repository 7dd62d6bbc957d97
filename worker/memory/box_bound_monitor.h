// BoxBoundMonitor: reports micro-batches with more boxes than planned for.
//
// The plan relies on a bound (parallel/predict/label_bound.h). Randomly drawn
// images may exceed this bound in one of a billion micro-batches; labels that
// were not counted may exceed it at any time. A step with more boxes may not
// fit; it is then tried again with less memory.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "parallel/base/text.h"
#include "parallel/predict/label_bound.h"
#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"
#include "worker/memory/memory_ladder.h"

namespace headroom::memory {

class BoxBoundMonitor {
 public:
  explicit BoxBoundMonitor(predict::LabelBound labels)
      : labels_(std::move(labels)) {}

  // Returns an event if a micro-batch exceeds the bound by more than all
  // earlier micro-batches.
  std::optional<StepEvent> look_at(const loader::Batch& batch) {
    std::optional<StepEvent> event;
    for (const plan::SampleRange& part : batch.micro_batches) {
      const auto boxes =
          static_cast<int64_t>(loader::labels_of(batch, part).size());
      const int64_t bound = predict::most_boxes(labels_, part.size()).boxes;
      if (boxes - bound <= most_beyond_) continue;
      most_beyond_ = boxes - bound;
      const nlohmann::ordered_json detail = {
          {"samples", part.size()}, {"boxes", boxes}, {"bound", bound}};
      event = StepEvent{EventKind::kLabelBound,
                        cat("a micro-batch of ", part.size(), " has ", boxes,
                            " boxes, and the plan's bytes are for: ",
                            predict::bound_text(labels_, part.size()),
                            "; what does not fit is tried again, leaner"),
                        detail.dump()};
    }
    return event;
  }

 private:
  const predict::LabelBound labels_;
  int64_t most_beyond_ = 0;
};

}  // namespace headroom::memory
