// RunContext: the run of which this rank is a member: its configuration, plan,
// data and device, and the coordinator to which it reports.
//
// Ownership: TrainingRun makes it before all other objects of a generation and
// frees it last. It exists for one generation, or for several in which the rank
// keeps its place; then only `assignment` changes, between generations. Borrows
// the client, and the parts that CrossGenerationState owns.
// Threads: the training thread. `rank`, `config`, `client` and `faults` may be
// used by any thread, because a loader's threads send reports, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/devices/compute_device.h"
#include "parallel/plan/plan.h"
#include "parallel/predict/memory_model.h"
#include "worker/control/coordinator_client.h"
#include "worker/optim/lr_schedule.h"
#include "worker/step/fault_injection.h"
#include "worker/step/run_data.h"

namespace headroom::run {

struct CrossGenerationState;

struct RunContext {
  RunContext(const control::Assignment& newest,
             control::CoordinatorClient& coordinator,
             CrossGenerationState& carried);

  control::Assignment assignment;  // the newest assignment
  const int rank;                  // the same in each new assignment
  const configs::RunConfig config;
  control::CoordinatorClient& client;
  step::FaultInjection& faults;
  const devices::ComputeDevice device;
  const step::RunData& data;
  // Network rates, measured by the first generation on several machines.
  const std::optional<plan::NetworkRates>& network;
  const std::vector<layers::LayerCost> layers;
  predict::MemoryRequest memory;  // the run's request to the memory model
  const int64_t steps_in_epoch, images_in_epoch;
  const int64_t num_steps;  // steps of the whole run
  const optim::ScheduleOptions schedule;

  // Whether the run continues: from a checkpoint (--resume), or from the state
  // of an earlier generation.
  bool continues() const {
    return !config.resume.empty() || assignment.generation > 1;
  }
  // Reports an event of the whole run; only rank 0 sends it.
  void report(EventKind kind, int64_t step, const std::string& reason,
              bool warning = false) const {
    client.report_event({.event = kind,
                         .step = step,
                         .rank = 0,
                         .reason = reason,
                         .warning = warning});
  }
};

}  // namespace headroom::run
