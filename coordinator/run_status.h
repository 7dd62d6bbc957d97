// RunStatus: what a run is doing, as plain values for people and programs.
//
// The coordinator fills it, `headroom status`, the progress line and tests read
// it; no type of the wire shows here.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"
#include "proto/event_file.h"

namespace headroom {

// How far the run is, as rank 0 last reported.
struct RunProgress {
  int64_t step = 0, num_steps = 0;  // committed so far, of the whole run
  int64_t epoch = 0, num_epochs = 0;
  int64_t step_in_epoch = 0, steps_per_epoch = 0;
  double box = 0, obj = 0, cls = 0;  // means over the epoch so far
  double images_per_second = 0;      // over all ranks
  int64_t measured_peak_bytes = 0;
  int64_t predicted_peak_bytes = 0;  // 0: not known
  int64_t image_height = 0, image_width = 0;
  std::string phase;           // "start", "train", "validate", "checkpoint"
  int64_t quiet_ms = 0;        // as in coordinator.proto
  int64_t median_step_ms = 0;  // likewise
};

struct MemberStatus {
  std::string worker_id;
  std::string node_id;
  std::string hostname;
  int rank = -1;  // -1 before the first generation
  double heartbeat_age_seconds = 0;
  std::string state;  // "expected", "joined", "running", "gone"
  int64_t measured_peak_bytes = 0;
};

struct RunStatus {
  std::string version;
  std::string run_digest;
  uint64_t generation = 0;
  // "waiting", "running", "reforming", "stopping", "finished", "failed"
  std::string state;
  std::string reason;  // why it is so, in words
  int exit_code = 0;   // once finished or failed
  std::string run_directory;
  RunProgress progress;
  std::vector<MemberStatus> members;
  std::optional<Plan> plan;         // once there is a generation
  std::string result_json;          // summary.json's content, once finished
  std::vector<EventRecord> events;  // the newest 20, oldest first

  bool over() const { return state == "finished" || state == "failed"; }
};

}  // namespace headroom
