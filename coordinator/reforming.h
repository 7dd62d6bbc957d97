// Reforming: how a run goes from one generation to the next at a committed
// step.
//
//   every member leaves its generation: the step's checkpoint is written,
//   tensors and connections are let go of
//     -> once all have left, the next generation starts from that checkpoint
//
// Threads: values and pure functions; time is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/rank_assignment.h"
#include "coordinator/replan.h"

namespace headroom {

// Where a generation begins: a checkpoint in the run directory, and the steps
// that its state has. Without one, as the run's request says.
struct ResumePoint {
  int64_t committed_steps = 0;
  std::string checkpoint;  // its folder
  bool operator==(const ResumePoint&) const = default;
};

// What a worker says when it has left.
struct Leaving {
  ResumePoint from;
  // As the worker knows it: the failed rank is the same for all, the bytes are
  // its own.
  MemoryShortage shortage;
  std::string result_json;  // from rank 0: summary.json's content
};

struct Reforming {
  TimePoint begin;
  std::map<std::string, Leaving> left;  // by worker
};

// Members that have not left, in the order of their ranks.
std::vector<RankedMember> still_to_leave(
    const Reforming& reforming, const std::vector<RankedMember>& members);

// The failed rank's bytes, and the room of whoever has least.
// REQUIRES: all members have left.
MemoryShortage shortage_of(const Reforming& reforming,
                           const std::vector<RankedMember>& members);

}  // namespace headroom
