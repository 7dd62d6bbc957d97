// RunContext: what a training run on one rank consists of, from its
// configuration to the state that it starts from: model and data, mesh, loss,
// schedule, what is written, the memory that loaders may take. training_run.cpp
// goes from there.
//
// Ownership: owns its parts; borrows the coordinator client.
// Threads: the one that trains.
// Errors: of the constructor and of prepare(), Error (exit 2) for data,
// weights, checkpoints and memory that do not fit the request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/mesh.h"
#include "parallel/devices/compute_device.h"
#include "parallel/predict/memory_model.h"
#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/control/coordinator_client.h"
#include "worker/loss/detection_loss.h"
#include "worker/memory/memory_trace.h"
#include "worker/optim/lr_schedule.h"
#include "worker/run/device_memory_report.h"
#include "worker/run/generation_loop.h"
#include "worker/run/run_milestones.h"
#include "worker/run/run_pictures.h"
#include "worker/run/run_recorder.h"
#include "worker/step/collective_schedule.h"
#include "worker/step/run_inputs.h"
#include "worker/step/teacher.h"
#include "worker/step/training_state.h"
#include "worker/validation/run_loaders.h"

namespace headroom::run {

struct RunContext {
  RunContext(const control::Assignment& given,
             control::CoordinatorClient& coordinator,
             const devices::ComputeDevice& where,
             memory::DeviceFootprint& taken, CrossGenerationState& from_before);

  // The state before the first step: fresh, from weights, a checkpoint's, or
  // what the ranks still hold of an earlier generation's, whichever is newest;
  // by rank 0 the run directory, last of all that may be refused. Collective.
  void prepare(collectives::Communicator& communicator);
  // After that, where this rank draws any.
  void begin_pictures();

  int64_t committed() const { return state->counters.committed_steps; }
  int64_t images_in_epoch() const {
    return inputs.training ? inputs.training->size()
                           : steps_in_epoch * config.global_batch_size;
  }
  bool is_between_epochs() const {
    return headroom::run::is_between_epochs(committed(), steps_in_epoch);
  }
  bool epoch_is_unrecorded() const {
    return is_between_epochs() &&
           committed() / steps_in_epoch > state->counters.recorded_epochs;
  }
  std::vector<layers::LayerCost> layers_of_model() const;

  control::Assignment assignment;
  const devices::ComputeDevice device;
  memory::DeviceFootprint& footprint;  // of this process on it
  control::CoordinatorClient& client;
  configs::RunConfig config;
  CrossGenerationState& carried;
  step::RunInputs& inputs;        // carried
  predict::MemoryRequest memory;  // the run's question to the memory model
  memory::StepSegments segments;  // of a step on a device
  // A device once the ranks were connected, until a first step has run.
  std::optional<DeviceMemorySample> before_steps;
  std::unique_ptr<collectives::Mesh> mesh;
  std::unique_ptr<step::Teacher> teacher;  // null: none
  std::unique_ptr<step::TrainingState> state;
  std::unique_ptr<RunRecorder> recorder;
  int64_t steps_in_epoch = 0;
  std::unique_ptr<checkpoint::PeerReplicas>
      buddies;  // of a state that is in parts
  std::unique_ptr<checkpoint::CheckpointSaver> saver;
  step::CollectiveSchedule collective_schedule;
  predict::HostShares host;  // of the loaders, and room for a copy of the state
  loss::LossGains gains;
  optim::ScheduleOptions schedule;
  int64_t checkpoint_steps;   // of the newest checkpoint
  bool has_state = false;     // `state` is a committed one
  std::string restored_line;  // of steps.jsonl, that came with it
  std::unique_ptr<memory::MemoryTracer> tracer;  // while steps are recorded
  std::unique_ptr<RunPictures> pictures;         // of the rank that draws

 private:
  // Before anything is allocated: refuses what cannot fit.
  void bound_memory();
  void fill_model(collectives::Communicator& communicator,
                  model::LayerGraph& model);
  void resume();
  // Of an earlier generation, or from a checkpoint. False: there is nothing.
  bool restore();
  // Says where it is not what the run had.
  void note_data();
  void begin_copies();
  void share_host_memory();
  step::CollectiveSchedule record_exchanges() const;
};

}  // namespace headroom::run
