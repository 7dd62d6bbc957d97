// ValidationPace: which epochs are validated and saved, so that this takes at
// most a share of the time also where an epoch is shorter than its validation.
//
// Pure: the caller passes the time. Rank 0 decides for all ranks. Of the steps,
// nothing depends on it (epoch_end.h).
#pragma once

#include <chrono>

namespace headroom::run {

class ValidationPace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `share`: configs::validation_share(); 0 makes every epoch due.
  explicit ValidationPace(double share) : share_(share) {}

  double share() const { return share_; }
  // Whether an epoch that ends at `now` is due: the first one, and each one
  // before which the run has trained long enough.
  bool is_due(Time now) const;
  // Records the validation, files and checkpoint of an epoch.
  void note(Time begin, Time end);
  // Seconds of the newest one, and of training since.
  double seconds() const { return seconds_; }
  double trained_seconds(Time now) const;

 private:
  double share_;
  double seconds_ = 0;  // 0 before the first
  Time end_;
};

}  // namespace headroom::run
