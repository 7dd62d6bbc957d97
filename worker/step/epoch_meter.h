// EpochMeter: means of the loss terms over the steps of an epoch so far.
//
// Part of the committed state, so that a resumed epoch has its whole mean.
#pragma once

#include <cstdint>

namespace headroom::step {

struct EpochMeter {
  int64_t steps = 0;
  double box = 0, obj = 0, cls = 0;

  void add(double step_box, double step_obj, double step_cls) {
    ++steps;
    box += (step_box - box) / static_cast<double>(steps);
    obj += (step_obj - obj) / static_cast<double>(steps);
    cls += (step_cls - cls) / static_cast<double>(steps);
  }
};

}  // namespace headroom::step
