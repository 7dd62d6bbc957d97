// EpochMeter: means of the loss terms over the steps of an epoch so far.
#pragma once

#include <cstdint>

namespace headroom {

class EpochMeter {
 public:
  void add(double box, double obj, double cls) {
    ++steps_;
    box_ += (box - box_) / static_cast<double>(steps_);
    obj_ += (obj - obj_) / static_cast<double>(steps_);
    cls_ += (cls - cls_) / static_cast<double>(steps_);
  }
  double box() const { return box_; }
  double obj() const { return obj_; }
  double cls() const { return cls_; }

 private:
  int64_t steps_ = 0;
  double box_ = 0, obj_ = 0, cls_ = 0;
};

}  // namespace headroom
