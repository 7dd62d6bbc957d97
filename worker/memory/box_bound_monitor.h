// BoxBoundMonitor: says when a micro-batch has more boxes than the plan's bytes
// are meant for.
//
// The plan counts on a bound (parallel/predict/label_bound.h) that drawn images
// may exceed once in a billion, and labels that were not counted at any time.
// Such a step may not fit; then it is tried again, leaner.
#pragma once

#include <cstdint>
#include <optional>

#include "parallel/predict/label_bound.h"
#include "worker/data/loader/batch.h"
#include "worker/memory/memory_ladder.h"

namespace headroom::memory {

class BoxBoundMonitor {
 public:
  explicit BoxBoundMonitor(predict::LabelBound labels);

  // Returns an event where a micro-batch exceeds the bound by more than any
  // before it.
  std::optional<StepEvent> look_at(const loader::Batch& batch);

 private:
  const predict::LabelBound labels_;
  int64_t most_beyond_ = 0;
};

}  // namespace headroom::memory
