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
#include "configs/flags.h"
#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/log.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/collectives/backend.h"
#include "parallel/collectives/counting_communicator.h"
#include "parallel/collectives/local_communication_error.h"
#include "parallel/collectives/network_measurement.h"
#include "parallel/predict/time_model.h"
#include "worker/control/agent_loss.h"
#include "worker/kernels/cpu/heap.h"
#include "worker/run/orphaned_run.h"
#include "worker/run/run_device.h"
#include "worker/run/run_nccl.h"
#include "worker/run/run_network.h"
#include "worker/run/training_run.h"
#include "worker/run/validation_run.h"
#include "worker/step/fault_injection.h"
#include "worker/step/step_gradients.h"
#include "worker/step/weight_check.h"

namespace headroom::run {
namespace {

// The time limit of an operation between ranks. A closed connection reveals a
// dead peer at once, and the coordinator notices a silent node; the limit is
// for other failures. It is long because rank 0 may be writing a checkpoint.
constexpr std::chrono::minutes kOperationTimeout{2};

// State that this process keeps from generation to generation.
struct ThisProcess {
  CrossGenerationState carried;
  Card card;  // the card of carried.device
  // The ranks of the newest generation.
  std::unique_ptr<collectives::CountingCommunicator> communicator;
  std::unique_ptr<TrainingRun> training;  // refers to the members above
  // From the first lost generation on, this worker may be one of the last that
  // hold the state.
  std::optional<agent_loss::Reprieve> reprieve;
  bool is_saved = false;  // all ranks saved the newest step before their end
  step::UndecidedDifferences undecided;
  int64_t committed_steps() const {
    return training ? training->committed_steps() : carried.newest_step();
  }
};

std::unique_ptr<collectives::Communicator> connect_ranks(
    const control::Assignment& assignment, const configs::RunConfig& config,
    control::CoordinatorClient& client, const WorkerOptions& options,
    ThisProcess& process) {
  const PeerWait waiting;  // all calls below wait for other ranks
  const devices::ComputeDevice& device = *process.carried.device;
  std::optional<plan::NetworkRates>& network = process.carried.network;
  collectives::NetworkOptions sockets;
  sockets.hostname = options.socket_folder.empty() ? options.advertise_host
                                                   : options.socket_folder;
  sockets.timeout = kOperationTimeout;
  sockets.full_mesh_up_to = static_cast<int>(config.full_mesh_ranks);
  const std::shared_ptr<KeyValueStore> store =
      client.rendezvous(assignment.generation);
  if (!assignment.has_one_agent && assignment.world_size > 1) {
    check_address(*store, assignment.rank, assignment.world_size,
                  options.advertise_host, collectives::this_machine());
  }
  std::unique_ptr<collectives::Communicator> ranks =
      collectives::make_communicator(assignment.plan.backend, store, "ranks",
                                     assignment.rank, assignment.world_size,
                                     sockets);
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
    process.carried.footprint.communication =
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

// Rank 0 reports that the run is over. The other ranks wait for this report: if
// rank 0 is lost first, one of them ends the run.
void finish(control::CoordinatorClient& client,
            const control::Assignment& assignment, const RunOutcome& end,
            int64_t committed_steps, collectives::Communicator& communicator) {
  if (assignment.rank == 0) {
    client.finish(finished_run(end, committed_steps));
  }
  communicator.barrier();
}

// Connects the ranks, and trains or validates.
RunOutcome run_connected(const control::Assignment& assignment,
                         const configs::RunConfig& config,
                         control::CoordinatorClient& client,
                         const WorkerOptions& options, ThisProcess& process) {
  const devices::ComputeDevice& device = *process.carried.device;
  std::optional<AbortableWait> abortable;
  std::optional<CardWatch> watch;
  if (!device.is_cpu()) {
    abortable.emplace([api = device.api()] { api->abort_communicators(); });
    watch.emplace(device);
  }
  std::unique_ptr<collectives::Communicator> ranks =
      connect_ranks(assignment, config, client, options, process);
  auto& communicator = process.communicator;
  if (assignment.keeps_state) {
    communicator->reconnect(std::move(ranks));
  } else {
    communicator =
        std::make_unique<collectives::CountingCommunicator>(std::move(ranks));
  }
  RunOutcome end = process.training
                       ? process.training->run(*communicator)
                       : run_validation(assignment, client, *communicator,
                                        device, options.shared.index);
  if (!end.left && !end.has_no_agent) {
    finish(client, assignment, end, process.committed_steps(), *communicator);
  }
  return end;
}

// The facts about an exception that are reported to the coordinator.
struct Failure {
  control::FailureKind kind = control::FailureKind::kFatal;
  int exit_code = static_cast<int>(ExitCode::kResource);
  std::string message;
  // Whether a rank computes wrong, and whether this may be the rank.
  bool weights_differ = false;
  bool is_suspect = false;
  bool is_undecided = false;
};

Failure describe(const std::exception_ptr& exception) {
  using control::FailureKind;
  Failure failure;
  const auto note = [&](const Error& error, FailureKind kind) {
    failure = {kind, static_cast<int>(error.exit_code()), error.what()};
  };
  try {
    std::rethrow_exception(exception);
  } catch (const step::WeightsDiffer& difference) {
    failure.kind = FailureKind::kConnection;
    failure.message = difference.what();
    failure.weights_differ = true;
    failure.is_suspect = difference.is_undecided();
    failure.is_undecided = !difference.judgement().undecided.empty();
  } catch (const LocalCommunicationError& error) {
    note(error, FailureKind::kConnection);
  } catch (const CommunicationError& error) {
    note(error, FailureKind::kLostPeer);
  } catch (const Error& error) {
    note(error, FailureKind::kFatal);
  } catch (const c10::OutOfMemoryError& error) {
    failure.kind = FailureKind::kOutOfMemory;
    failure.message = "[memory] " +
                      std::string(error.what_without_backtrace()) +
                      ": use a smaller --batch or --img";
  } catch (const std::bad_alloc&) {
    failure.kind = FailureKind::kOutOfMemory;
    failure.message =
        "[memory] the process is out of host memory: use a smaller --batch, "
        "--img or --host-memory-limit";
  } catch (const c10::Error& error) {
    failure.message = "[worker] " + std::string(error.what_without_backtrace());
  } catch (const std::exception& error) {
    failure.message = "[worker] " + std::string(error.what());
  }
  return failure;
}

// After a failure in collective work this rank leaves the generation; its peers
// fail at once, and the coordinator forms the next generation. Returns false if
// the worker must end: its state cannot be trusted, or no peer would wait.
bool leave_failed_generation(control::CoordinatorClient& client,
                             const control::Assignment& assignment,
                             const Failure& failure, ThisProcess& process) {
  using control::FailureKind;
  TrainingRun* const training = process.training.get();
  const bool is_connection = failure.kind == FailureKind::kLostPeer ||
                             failure.kind == FailureKind::kConnection;
  // MPI cannot connect the same processes again.
  const bool can_retry = failure.kind == FailureKind::kOutOfMemory &&
                         training != nullptr && training->can_go_on() &&
                         assignment.world_size > 1 &&
                         assignment.plan.backend != plan::Backend::kMpi;
  if (!is_connection && !can_retry) return false;
  log::debug(failure.message);
  control::WorkerFailure report{.exit_code = failure.exit_code,
                                .message = failure.message,
                                .kind = failure.kind,
                                .committed_steps = process.committed_steps()};
  if (training != nullptr) {
    report.is_leaner = can_retry && training->needs_less();
    training->leave_peers();
    report.can_go_on = training->can_go_on();
    report.recorded_epochs = training->recorded_epochs();
    report.holds_a_part = !training->holds_whole_state();
    report.checkpoint_steps = training->checkpoint_steps();
  }
  if (process.communicator) process.communicator->disconnect();
  if (!agent_loss::has_happened()) client.report_failure(report);
  return true;
}

// A rank computes wrong, and every rank's state depends on it: no state in
// memory is kept. If nobody is outvoted a second time soon after the first, the
// ranks end.
void distrust_all(control::CoordinatorClient& client,
                  const control::Assignment& assignment, ThisProcess& process,
                  Failure& failure) {
  const int64_t committed = process.committed_steps();
  if (process.training) process.training->distrust();
  process.carried.held.clear();
  if (!failure.is_undecided) return;
  const int64_t within_steps =
      configs::parse_run_config(assignment.run_config_yaml, run_files::kRun)
          .card_failure_steps;
  const bool is_last = process.undecided.is_repeated(committed, within_steps);
  if (failure.is_suspect) {
    client.report_event(
        {.event = EventKind::kCardFailure,
         .step = committed,
         .rank = assignment.rank,
         .reason = cat(
             "rank ", assignment.rank, " on ", this_host_name(),
             process.card == Card() ? "" : ", " + to_string(process.card),
             ", may compute wrong: ", failure.message, "; ",
             is_last ? cat("it is the second time within ",
                           counted(within_steps, "step"), ", so the run ends")
                     : cat("the steps since the newest checkpoint are "
                           "computed again")),
         .warning = true});
  }
  if (!is_last) return;
  failure.kind = control::FailureKind::kFatal;
  failure.message +=
      ", for the second time: train on each of their cards alone (--device) to "
      "find it, then continue on the others with --resume";
}

// Called if memory ran out outside of a step. The failed work's memory is free
// again, so a worker without peers can still save its last committed step.
// Returns false if no step was committed, or memory is still too short.
bool saved_alone(control::CoordinatorClient& client, TrainingRun& training,
                 const std::string& message) {
  if (!training.holds_whole_state() || training.committed_steps() == 0) {
    return false;
  }
  try {
    RunOutcome end = training.save_committed({});
    end.reason = message + "; " + end.reason;
    client.finish(finished_run(std::move(end), training.committed_steps()));
    return true;
  } catch (const std::exception& error) {
    log::warn(std::string("the state could not be saved: ") + error.what());
    return false;
  }
}

// Frees everything of the generation, so that the free memory for the next one
// can be measured. Keeps the state if it is in no checkpoint.
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

// Makes the generation's training run, or reuses the existing one if the
// assignment keeps its state.
void prepare_training(const control::Assignment& assignment,
                      const configs::RunConfig& config,
                      control::CoordinatorClient& client,
                      ThisProcess& process) {
  const bool is_first = assignment.generation == 1;
  if (!process.carried.faults) {
    process.carried.faults = std::make_unique<step::FaultInjection>(
        configs::parse_faults(config.inject), *process.carried.device,
        assignment.rank, is_first ? -1 : assignment.resume_steps,
        assignment.plan.backend == plan::Backend::kNccl &&
            assignment.world_size >
                assignment.plan.layout.pipeline_parallel_size);
  }
  if (!is_first) {
    process.carried.faults->strike(configs::Fault::Phase::kBetween,
                                   assignment.resume_steps);
  }
  if (assignment.keeps_state) {
    HEADROOM_CHECK(process.training != nullptr, "there is no state to keep");
    process.training->enter(assignment);
    return;
  }
  if (process.training) {  // keep the committed state, free everything else
    process.training->hold_committed();
    process.training.reset();
    step::release_failed_graph();
    kernels::release_freed_memory();
  }
  process.training =
      std::make_unique<TrainingRun>(assignment, client, process.carried);
}

void take_part(const control::Assignment& assignment,
               control::CoordinatorClient& client, const WorkerOptions& options,
               ThisProcess& process) {
  if (assignment.action == control::Action::kSaveAndExit) {
    HEADROOM_CHECK(process.training != nullptr, "nothing was trained yet");
    RunOutcome end = process.training->save_committed(assignment.folder);
    client.finish(finished_run(std::move(end), process.committed_steps()));
    return;
  }
  if (const auto met = client.rendezvous(assignment.generation)) {
    // Publish the machine before the slow work below, so that the other ranks
    // notice early that this rank is running.
    say_here(*met, assignment.rank, collectives::this_machine());
  }
  const configs::RunConfig config =
      configs::parse_run_config(assignment.run_config_yaml, run_files::kRun);
  if (!process.carried.device) {
    const ChosenDevice chosen = choose_device(
        config, assignment.local_rank, assignment.local_world_size,
        options.card, card_record(assignment));
    process.carried.device = chosen.device;
    process.carried.footprint = chosen.footprint;
    process.card = chosen.card;
  }
  if (config.command == "train") {
    configs::require_augment_program(config, options.augment_program);
    prepare_training(assignment, config, client, process);
  }
  const RunOutcome end =
      run_connected(assignment, config, client, options, process);
  // Without a failure every rank reaches this line and closes its connections.
  process.communicator.reset();
  process.is_saved = end.has_no_agent;
  if (end.left) {
    leave_generation(client, *end.left, process.carried.device->memory(),
                     process.training);
  }
}

// Follows the coordinator's assignments until the run is over, or the agent is
// lost. Returns the exit code. Throws Error if the coordinator is lost.
int follow_assignments(control::CoordinatorClient& client,
                       const WorkerOptions& options,
                       std::unique_ptr<ThisProcess>& owned) {
  ThisProcess& process = *owned;
  // A worker without its agent cannot report anything, so it ends.
  while (!agent_loss::has_happened()) {
    const control::Assignment assignment = client.next_assignment();
    if (assignment.action == control::Action::kExit) return 0;
    if (process.reprieve) process.reprieve.emplace(assignment.has_one_agent);
    log::set_prefix(cat("gen ", assignment.generation, " rank ",
                        assignment.rank, "/", assignment.world_size));
    std::exception_ptr exception;
    std::optional<CardFault> fault;
    try {
      take_part(assignment, client, options, process);
    } catch (...) {
      exception = std::current_exception();
      fault =
          card_fault_behind(exception, process.carried.device, process.card);
    }
    if (fault) {
      // Destroys no object that uses the card: the destructors would fail.
      static_cast<void>(owned.release());
      return end_for_card(client, *fault, process.committed_steps(),
                          process.training.get());
    }
    if (!exception) continue;
    Failure failure = describe(exception);
    exception = nullptr;  // free its objects outside the catch block
    if (failure.weights_differ) {
      distrust_all(client, assignment, process, failure);
    }
    if (!process.reprieve && process.committed_steps() > 0) {
      process.reprieve.emplace(assignment.has_one_agent);
    }
    if (leave_failed_generation(client, assignment, failure, process)) continue;
    if (agent_loss::has_happened()) break;
    if (failure.kind == control::FailureKind::kOutOfMemory &&
        process.training && assignment.world_size == 1 &&
        saved_alone(client, *process.training, failure.message)) {
      continue;
    }
    client.report_failure({.exit_code = failure.exit_code,
                           .message = failure.message,
                           .committed_steps = process.committed_steps()});
    return failure.exit_code;
  }
  return static_cast<int>(ExitCode::kResource);
}

// Without a coordinator, or an agent, no other process tells the survivors of a
// lost generation who saves the state.
void save_without_coordinator(ThisProcess& process) {
  if (process.is_saved) return;
  try {
    if (process.training) {
      process.training->leave_peers();
      process.training->hold_committed();  // memory may not suffice
      process.training.reset();
    }
    const std::string line = save_orphaned_run(process.carried);
    if (!line.empty()) log::warn(line);
  } catch (const std::exception& error) {
    log::warn(cat("the state is not saved: ", error.what()));
  }
}

}  // namespace

int run_generations(control::CoordinatorClient& client,
                    const WorkerOptions& options) {
  auto process = std::make_unique<ThisProcess>();
  process->carried.shared = options.shared;
  try {
    const int exit_code = follow_assignments(client, options, process);
    if (process && agent_loss::has_happened()) {
      save_without_coordinator(*process);
    }
    return exit_code;
  } catch (const CommunicationError&) {
    if (process) save_without_coordinator(*process);
    throw;
  }
}

}  // namespace headroom::run
