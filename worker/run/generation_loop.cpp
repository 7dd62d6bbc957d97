#include "worker/run/generation_loop.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "configs/fault.h"
#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/run_files.h"
#include "parallel/collectives/backend.h"
#include "parallel/collectives/counting_communicator.h"
#include "parallel/collectives/local_communication_error.h"
#include "parallel/collectives/network_measurement.h"
#include "parallel/predict/time_model.h"
#include "worker/control/agent_loss.h"
#include "worker/kernels/cpu/heap.h"
#include "worker/run/run_device.h"
#include "worker/run/run_nccl.h"
#include "worker/run/run_network.h"
#include "worker/run/training_run.h"
#include "worker/run/validation_run.h"
#include "worker/step/fault_injection.h"
#include "worker/step/step_gradients.h"

namespace headroom::run {
namespace {

// A peer that dies is noticed at once by its closed connection, a silent node
// by the coordinator; this bounds only what neither sees. Rank 0 may be busy
// writing a checkpoint meanwhile.
constexpr std::chrono::minutes kOperationTimeout{2};

std::unique_ptr<collectives::Communicator> connect_ranks(
    const control::Assignment& assignment, const configs::RunConfig& config,
    control::CoordinatorClient& client, const WorkerOptions& options,
    const devices::ComputeDevice& device, memory::DeviceFootprint& footprint,
    std::optional<plan::NetworkRates>& network) {
  collectives::GlooOptions gloo;
  gloo.hostname = options.advertise_host;
  gloo.timeout = kOperationTimeout;
  gloo.full_mesh_up_to = static_cast<int>(config.full_mesh_ranks);
  const std::shared_ptr<KeyValueStore> store =
      client.rendezvous(assignment.generation);
  if (!assignment.has_one_agent && assignment.world_size > 1) {
    check_address(*store, assignment.rank, assignment.world_size,
                  options.advertise_host, collectives::this_machine());
  }
  std::unique_ptr<collectives::Communicator> ranks =
      collectives::make_communicator(assignment.plan.backend, store, "ranks",
                                     assignment.rank, assignment.world_size,
                                     gloo);
  if (config.command == "train") {
    network =
        network_at_start(assignment, options.advertise_host, client, *ranks);
  }
  if (!device.is_cpu()) {
    const bool has_nccl = assignment.plan.backend == plan::Backend::kNccl &&
                          assignment.world_size > 1;
    devices::DeviceCommunicatorOptions nccl;
    nccl.device = device.device().index();
    nccl.timeout = kOperationTimeout;
    nccl.may_share_devices = config.share_devices;
    const DeviceMemorySample before(device);
    std::shared_ptr<collectives::DeviceRanks> devices;
    if (has_nccl) {
      check_nccl_environment();
      devices = device.api()->connect_ranks(*ranks, nccl);
    }
    collectives::Communicator& host = *ranks;
    ranks = collectives::make_device_host_communicator(std::move(ranks),
                                                       std::move(devices));
    ranks->connect();
    footprint.communication =
        has_nccl
            ? before.taken_since().value_or(predict::kGpuCommunicationBytes)
            : 0;
    if (has_nccl) {
      measure_nccl_at_start(assignment, config, device, nccl, client, host,
                            *ranks, network);
    }
  }
  return ranks;
}

control::FinishedRun finished_run(RunOutcome end, int64_t committed_steps) {
  return {.exit_code = end.exit_code,
          .reason = std::move(end.reason),
          .result_json = std::move(end.result_json),
          .step = committed_steps,
          .says_how_to_go_on = end.says_how_to_go_on};
}

// Rank 0 says that the run is over. The others stay until it has: should it be
// lost on the way, they are there to end the run.
void finish(control::CoordinatorClient& client,
            const control::Assignment& assignment, const RunOutcome& end,
            int64_t committed_steps, collectives::Communicator& communicator) {
  if (assignment.rank == 0) {
    client.finish(finished_run(end, committed_steps));
  }
  communicator.barrier();
}

// Connects the ranks, in `communicator`, which a training run that goes on
// borrows already.
RunOutcome run_connected(
    const control::Assignment& assignment, const configs::RunConfig& config,
    control::CoordinatorClient& client, const WorkerOptions& options,
    const devices::ComputeDevice& device, memory::DeviceFootprint& footprint,
    std::optional<plan::NetworkRates>& network,
    std::unique_ptr<collectives::CountingCommunicator>& communicator,
    TrainingRun* training) {
  std::optional<AbortableWait> abortable;
  if (!device.is_cpu()) {
    abortable.emplace([api = device.api()] { api->abort_communicators(); });
  }
  std::unique_ptr<collectives::Communicator> ranks = connect_ranks(
      assignment, config, client, options, device, footprint, network);
  if (assignment.keeps_state) {
    communicator->reconnect(std::move(ranks));
  } else {
    communicator =
        std::make_unique<collectives::CountingCommunicator>(std::move(ranks));
  }
  RunOutcome end = training != nullptr ? training->run(*communicator)
                                       : run_validation(assignment, client,
                                                        *communicator, device);
  if (!end.left && !end.has_no_agent) {
    finish(client, assignment, end,
           training != nullptr ? training->committed_steps() : 0,
           *communicator);
  }
  return end;
}

// What an exception that is not a lost peer means for the run.
struct Refusal {
  int exit_code = 1;
  std::string message;
};

Refusal describe(const std::exception_ptr& exception) {
  constexpr int kResource = static_cast<int>(ExitCode::kResource);
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {static_cast<int>(error.exit_code()), error.what()};
  } catch (const c10::OutOfMemoryError& error) {
    return {kResource, "[memory] " +
                           std::string(error.what_without_backtrace()) +
                           ": use a smaller --batch or --img"};
  } catch (const c10::Error& error) {
    return {kResource,
            "[worker] " + std::string(error.what_without_backtrace())};
  } catch (const std::bad_alloc&) {
    return {kResource,
            "[memory] the process is out of host memory: use a smaller "
            "--batch, --img or --host-memory-limit"};
  } catch (const std::exception& error) {
    return {kResource, "[worker] " + std::string(error.what())};
  }
}

control::FailureKind kind_of(const std::exception_ptr& exception) {
  using control::FailureKind;
  try {
    std::rethrow_exception(exception);
  } catch (const LocalCommunicationError&) {
    return FailureKind::kConnection;
  } catch (const CommunicationError&) {
    return FailureKind::kLostPeer;
  } catch (const c10::OutOfMemoryError&) {
    return FailureKind::kOutOfMemory;
  } catch (const std::bad_alloc&) {
    return FailureKind::kOutOfMemory;
  } catch (...) {
    return FailureKind::kFatal;
  }
}

// A rank that fails in what all ranks do together leaves its generation, and
// its peers fail at once; the coordinator forms the next one. False where the
// rank has to end: nothing else of it can be trusted, or nobody would wait.
bool leave_failed_generation(control::CoordinatorClient& client,
                             const control::Assignment& assignment,
                             control::FailureKind kind,
                             const std::string& message,
                             collectives::CountingCommunicator* communicator,
                             TrainingRun* training, int64_t committed_steps) {
  using control::FailureKind;
  const bool is_connection =
      kind == FailureKind::kLostPeer || kind == FailureKind::kConnection;
  // MPI cannot connect the same processes anew.
  const bool can_retry = kind == FailureKind::kOutOfMemory &&
                         training != nullptr && training->can_go_on() &&
                         assignment.world_size > 1 &&
                         assignment.plan.backend != plan::Backend::kMpi;
  if (!is_connection && !can_retry) return false;
  log::debug(message);
  control::WorkerFailure failure{
      .exit_code = static_cast<int>(ExitCode::kResource),
      .message = message,
      .kind = kind,
      .committed_steps = committed_steps};
  if (training != nullptr) {
    training->leave_peers();
    failure.can_go_on = training->can_go_on();
    failure.recorded_epochs = training->recorded_epochs();
    failure.holds_a_part = !training->holds_whole_state();
    failure.checkpoint_steps = training->checkpoint_steps();
  }
  if (communicator != nullptr) communicator->disconnect();
  if (!agent_loss::has_happened()) client.report_failure(failure);
  return true;
}

// Memory ran out where no step could be tried again. What the failure held is
// gone, and a worker without peers can still save its last committed step.
// False where it has none, or no memory for that either.
bool saved_alone(control::CoordinatorClient& client, TrainingRun& training,
                 const std::string& message) {
  if (!training.holds_whole_state() || training.committed_steps() == 0) {
    return false;
  }
  try {
    RunOutcome end = training.save_committed();
    end.reason = message + "; " + end.reason;
    client.finish(finished_run(std::move(end), training.committed_steps()));
    return true;
  } catch (const std::exception& error) {
    log::warn(std::string("the state could not be saved: ") + error.what());
    return false;
  }
}

// Releases everything of the generation, but for the state where no checkpoint
// has it, so that the room for the next can be measured.
void leave_generation(control::CoordinatorClient& client,
                      control::LeftGeneration left,
                      activations::MemoryMeter& memory,
                      std::unique_ptr<TrainingRun>& training) {
  if (left.was_asked) training->hold_committed();
  training.reset();
  kernels::release_freed_memory();
  memory.release_caches();
  if (memory.limit() != activations::MemoryMeter::kNoLimit) {
    left.shortfall.room_bytes =
        std::max<int64_t>(1, memory.limit() - memory.live_bytes());
  }
  client.leave_generation(left);
}

}  // namespace

int run_generations(control::CoordinatorClient& client,
                    const WorkerOptions& options) {
  CrossGenerationState carried;  // outlives generations
  // The ranks of the newest generation; `training` borrows them.
  std::unique_ptr<collectives::CountingCommunicator> communicator;
  std::unique_ptr<TrainingRun> training;         // outlives a lost peer
  std::unique_ptr<step::FaultInjection> faults;  // outlives generations
  std::optional<devices::ComputeDevice>
      device;                         // chosen with the first assignment
  memory::DeviceFootprint footprint;  // this process's part of it
  Card card;
  // Nobody would hear of another failure without an agent, either.
  while (!agent_loss::has_happened()) {
    const control::Assignment assignment = client.next_assignment();
    if (assignment.action == control::Action::kExit) return 0;
    log::set_prefix("gen " + std::to_string(assignment.generation) + " rank " +
                    std::to_string(assignment.rank) + "/" +
                    std::to_string(assignment.world_size));
    const auto committed = [&] {
      return training ? training->committed_steps() : carried.newest_step();
    };
    std::exception_ptr failure;
    std::optional<CardFault> fault;
    try {
      if (assignment.action == control::Action::kSaveAndExit) {
        HEADROOM_CHECK(training != nullptr, "nothing was trained yet");
        RunOutcome end = training->save_committed();
        client.finish(finished_run(std::move(end), committed()));
        continue;
      }
      if (const auto met = client.rendezvous(assignment.generation)) {
        // Sent before all that takes time: nobody waits for who is not there.
        say_here(*met, assignment.rank, collectives::this_machine());
      }
      const configs::RunConfig config = configs::parse_run_config(
          assignment.run_config_yaml, run_files::kRun);
      if (!device) {
        const ChosenDevice chosen =
            choose_device(config, assignment.local_rank,
                          assignment.local_world_size, options.card,
                          card_record(assignment));
        device = chosen.device;
        footprint = chosen.footprint;
        card = chosen.card;
      }
      if (config.command == "train") {
        if (!faults) {
          faults = std::make_unique<step::FaultInjection>(
              configs::parse_faults(config.inject), *device, assignment.rank,
              assignment.generation > 1 ? assignment.resume_steps : -1,
              assignment.plan.backend == plan::Backend::kNccl &&
                  assignment.world_size > 1);
        }
        if (assignment.generation > 1) {
          faults->strike(configs::Fault::Phase::kBetween,
                         assignment.resume_steps);
        }
        if (assignment.keeps_state) {
          HEADROOM_CHECK(training != nullptr, "there is no state to keep");
          training->enter(assignment);
        } else {
          if (training) {  // only its state is still wanted
            training->hold_committed();
            training.reset();
            step::release_failed_graph();
            kernels::release_freed_memory();
          }
          training = std::make_unique<TrainingRun>(
              TrainingRun::Inputs{.assignment = assignment,
                                  .client = client,
                                  .faults = *faults,
                                  .device = *device,
                                  .footprint = footprint,
                                  .carried = carried});
        }
      }
      const RunOutcome end =
          run_connected(assignment, config, client, options, *device, footprint,
                        carried.network, communicator, training.get());
      communicator.reset();  // all ranks are here: it ends in order
      if (end.left) {
        leave_generation(client, *end.left, device->memory(), training);
      }
    } catch (...) {
      failure = std::current_exception();
      fault = card_fault_behind(failure, device, card);
    }
    if (fault) return end_for_card(client, *fault, committed(), training);
    // The exception's frames are gone outside the catch.
    if (failure) {
      const control::FailureKind kind = kind_of(failure);
      const Refusal refusal = describe(failure);
      failure = nullptr;
      if (leave_failed_generation(client, assignment, kind, refusal.message,
                                  communicator.get(), training.get(),
                                  committed())) {
        continue;
      }
      if (agent_loss::has_happened()) break;
      if (kind == control::FailureKind::kOutOfMemory && training &&
          assignment.world_size == 1 &&
          saved_alone(client, *training, refusal.message)) {
        continue;
      }
      client.report_failure({.exit_code = refusal.exit_code,
                             .message = refusal.message,
                             .committed_steps = committed()});
      return refusal.exit_code;
    }
  }
  return static_cast<int>(ExitCode::kResource);
}

}  // namespace headroom::run
