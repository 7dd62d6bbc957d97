// RunParts: what a training run on one rank consists of, from its configuration
// to the state that it starts from: model and data, mesh, loss, schedule, what
// is written, the memory that loaders may take. training_run.cpp goes from
// there.
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

#include "configs/row_cost.h"
#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/mesh.h"
#include "parallel/devices/compute_device.h"
#include "parallel/plan/memory_model.h"
#include "worker/buddy_copies.h"
#include "worker/carried_state.h"
#include "worker/checkpoint_saver.h"
#include "worker/coordinator_client.h"
#include "worker/device_memory_report.h"
#include "worker/loss/detection_loss.h"
#include "worker/memory_tracer.h"
#include "worker/optim/lr_schedule.h"
#include "worker/pass_lists.h"
#include "worker/run_inputs.h"
#include "worker/run_loaders.h"
#include "worker/run_milestones.h"
#include "worker/run_pictures.h"
#include "worker/run_recorder.h"
#include "worker/teacher.h"
#include "worker/training_state.h"

namespace headroom {

struct RunParts {
  RunParts(const Assignment& given, CoordinatorClient& coordinator,
           const ComputeDevice& where, DeviceFootprint& taken,
           CarriedState& from_before);

  // The state before the first step: fresh, from weights, a checkpoint's, or
  // what the ranks still hold of an earlier generation's, whichever is newest;
  // by rank 0 the run directory, last of all that may be refused. Collective.
  void prepare(Communicator& communicator);
  // After that, where this rank draws any.
  void begin_pictures();

  int64_t committed() const { return state->counters.committed_steps; }
  int64_t images_in_epoch() const {
    return inputs.training ? inputs.training->size()
                           : steps_in_epoch * config.global_batch_size;
  }
  bool is_between_epochs() const {
    return headroom::is_between_epochs(committed(), steps_in_epoch);
  }
  bool epoch_is_unrecorded() const {
    return is_between_epochs() &&
           committed() / steps_in_epoch > state->counters.recorded_epochs;
  }
  std::vector<RowCost> rows_of_model() const;

  Assignment assignment;
  const ComputeDevice device;
  DeviceFootprint& footprint;  // of this process on it
  CoordinatorClient& client;
  RunConfig config;
  CarriedState& carried;
  RunInputs& inputs;      // carried
  MemoryRequest memory;   // the run's question to the memory model
  StepSegments segments;  // of a step on a device
  // A device once the ranks were connected, until a first step has run.
  std::optional<DeviceLook> before_steps;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<Teacher> teacher;  // null: none
  std::unique_ptr<TrainingState> state;
  std::unique_ptr<RunRecorder> recorder;
  int64_t steps_in_epoch = 0;
  std::unique_ptr<BuddyCopies> buddies;  // of a state that is in parts
  std::unique_ptr<CheckpointSaver> saver;
  PassLists pass_lists;
  HostShares host;  // of the loaders, and room for a copy of the state
  LossGains gains;
  ScheduleOptions schedule;
  int64_t checkpoint_steps;               // of the newest checkpoint
  bool has_state = false;                 // `state` is a committed one
  std::string restored_line;              // of steps.jsonl, that came with it
  std::unique_ptr<MemoryTracer> tracer;   // while steps are recorded
  std::unique_ptr<RunPictures> pictures;  // of the rank that draws

 private:
  // Before anything is allocated: refuses what cannot fit.
  void bound_memory();
  void fill_model(Communicator& communicator, LayerGraph& model);
  void resume();
  // Of an earlier generation, or from a checkpoint. False: there is nothing.
  bool restore();
  // Says where it is not what the run had.
  void note_data();
  void begin_copies();
  void share_host_memory();
  PassLists record_exchanges() const;
};

}  // namespace headroom
