// TrainingData: which data set a run trains on, as its checkpoints say it, so
// that a run that goes on with another one says so.
#pragma once

#include <cstdint>
#include <string>

namespace headroom::step {

struct TrainingData {
  int64_t images = 0;   // 0: none, or a checkpoint of a build that did not say
  uint64_t digest = 0;  // data/dataset.h: wherever the data set lies
  bool operator==(const TrainingData&) const = default;
};

// What people are told where a run of `committed` steps goes on with `now`, of
// `steps_in_epoch`; "": nothing has changed.
std::string data_change(const TrainingData& before, const TrainingData& now,
                        int64_t committed, int64_t steps_in_epoch);

}  // namespace headroom::step
