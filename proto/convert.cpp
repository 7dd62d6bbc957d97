#include "proto/convert.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan_json.h"
#include "proto/message_fields.h"

namespace headroom::wire {
namespace {

Error bad_field(const std::string& field, int64_t value,
                const std::string& rule) {
  return Error("wire", cat(field, " = ", value, ": ", rule),
               "install the same build on every node");
}

void check_axis(const std::string& field, int value) {
  if (value >= 1 && value <= kMaxWorldSize) return;
  throw bad_field(field, value,
                  cat("an axis has 1 to ", kMaxWorldSize, " ranks"));
}

void check_samples(const std::string& field, int64_t value) {
  constexpr int64_t kMaxSamples = int64_t{1} << 31;
  if (value >= 1 && value <= kMaxSamples) return;
  throw bad_field(field, value, "a number of samples is at least 1");
}

void check_size(const std::string& field, int64_t bytes) {
  if (bytes < 0) throw bad_field(field, bytes, "a size");
}

void check_predictions(const plan::Plan& plan) {
  const auto check_count = [&](const std::string& field, size_t size) {
    const auto count = static_cast<int64_t>(size);
    if (count == 0 || count == plan.layout.world_size()) return;
    throw bad_field(field, count,
                    cat("the plan's layout ", plan::to_string(plan.layout),
                        " has ", plan.layout.world_size(), " ranks"));
  };
  check_count("predicted_peak_bytes", plan.predicted_peak_bytes.size());
  check_count("predicted_phase_bytes", plan.predicted_phase_bytes.size());
  for (const int64_t bytes : plan.predicted_peak_bytes)
    check_size("predicted_peak_bytes", bytes);
  for (const plan::PhaseBytes& rank : plan.predicted_phase_bytes)
    for (const int64_t bytes : {rank.start_up, rank.training, rank.validation,
                                rank.checkpoint, rank.host})
      check_size("predicted_phase_bytes", bytes);
}

// Entries of a list that stand for `counts` ranks each; an empty list stays so.
template <typename Entry>
void repeat(std::vector<Entry>& list, const std::vector<int>& counts) {
  if (list.empty()) return;
  std::vector<Entry> all;
  for (size_t i = 0; i < counts.size(); ++i) {
    all.insert(all.end(), static_cast<size_t>(counts[i]), list[i]);
  }
  list = std::move(all);
}

// Leaves one entry of each run of ranks with equal predictions. Returns the
// lengths of the runs; nothing where there are no predictions.
std::vector<int> join_equal_ranks(plan::Plan& plan) {
  auto& peaks = plan.predicted_peak_bytes;
  auto& phases = plan.predicted_phase_bytes;
  const size_t ranks = std::max(peaks.size(), phases.size());
  std::vector<int> counts;
  size_t kept = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const bool is_equal = rank > 0 &&
                          (peaks.empty() || peaks[rank] == peaks[kept - 1]) &&
                          (phases.empty() || phases[rank] == phases[kept - 1]);
    if (is_equal) {
      ++counts.back();
      continue;
    }
    counts.push_back(1);
    if (!peaks.empty()) peaks[kept] = peaks[rank];
    if (!phases.empty()) phases[kept] = phases[rank];
    ++kept;
  }
  if (!peaks.empty()) peaks.resize(kept);
  if (!phases.empty()) phases.resize(kept);
  return counts;
}

void part_equal_ranks(const wire::Plan& message, plan::Plan& plan) {
  if (message.predicted_ranks().empty()) return;
  const std::vector<int> counts(message.predicted_ranks().begin(),
                                message.predicted_ranks().end());
  int64_t ranks = 0;
  for (const int count : counts) {
    if (count < 1) throw bad_field("predicted_ranks", count, "a number");
    ranks += count;
  }
  const auto fits = [&](size_t entries) {
    return entries == 0 || entries == counts.size();
  };
  if (ranks > kMaxWorldSize || !fits(plan.predicted_peak_bytes.size()) ||
      !fits(plan.predicted_phase_bytes.size())) {
    throw bad_field("predicted_ranks", ranks,
                    "each prediction stands for one of these numbers");
  }
  repeat(plan.predicted_peak_bytes, counts);
  repeat(plan.predicted_phase_bytes, counts);
}

}  // namespace

void fields(auto& archive, Either<plan::ParallelLayout> auto& layout) {
  archive("pipeline_parallel_size", layout.pipeline_parallel_size);
  archive("data_parallel_size", layout.data_parallel_size);
  archive("spatial_parallel_size", layout.spatial_parallel_size);
}

wire::ParallelLayout to_wire(const plan::ParallelLayout& layout) {
  return to_message<wire::ParallelLayout>(layout);
}

plan::ParallelLayout from_wire(const wire::ParallelLayout& message) {
  const auto layout = from_message<plan::ParallelLayout>(message);
  check_axis("pipeline_parallel_size", layout.pipeline_parallel_size);
  check_axis("data_parallel_size", layout.data_parallel_size);
  check_axis("spatial_parallel_size", layout.spatial_parallel_size);
  // Two axes at their bound fit in 64 bits, three do not: check in between.
  const int64_t outer =
      int64_t{layout.pipeline_parallel_size} * layout.data_parallel_size;
  if (outer > kMaxWorldSize ||
      outer * layout.spatial_parallel_size > kMaxWorldSize) {
    throw Error("wire",
                cat("layout ", plan::to_string(layout), " has more than ",
                    kMaxWorldSize, " ranks"),
                "install the same build on every node");
  }
  return layout;
}

wire::ActivationPolicy to_wire(plan::ActivationPolicy policy) {
  switch (policy) {
    case plan::ActivationPolicy::kKeep:
      return wire::ACTIVATION_POLICY_KEEP;
    case plan::ActivationPolicy::kLean:
      return wire::ACTIVATION_POLICY_LEAN;
    case plan::ActivationPolicy::kRecompute:
      return wire::ACTIVATION_POLICY_RECOMPUTE;
    case plan::ActivationPolicy::kOffload:
      return wire::ACTIVATION_POLICY_OFFLOAD;
  }
  HEADROOM_CHECK(false, cat("activation policy ", static_cast<int>(policy)));
}

plan::ActivationPolicy policy_from_wire(int policy) {
  switch (policy) {
    case wire::ACTIVATION_POLICY_KEEP:
      return plan::ActivationPolicy::kKeep;
    case wire::ACTIVATION_POLICY_LEAN:
      return plan::ActivationPolicy::kLean;
    case wire::ACTIVATION_POLICY_RECOMPUTE:
      return plan::ActivationPolicy::kRecompute;
    case wire::ACTIVATION_POLICY_OFFLOAD:
      return plan::ActivationPolicy::kOffload;
    default:
      throw bad_field("activation_policies", policy,
                      "this build does not know it");
  }
}

void fields(auto& archive, Either<plan::PhaseBytes> auto& rank) {
  archive("start_up", rank.start_up);
  archive("training", rank.training);
  archive("validation", rank.validation);
  archive("checkpoint", rank.checkpoint);
  archive("host", rank.host);
}

// All but the backend and the activation policies, which are enums of the wire.
void fields(auto& archive, Either<plan::Plan> auto& plan) {
  archive("layout", plan.layout);
  archive("micro_batch_size", plan.micro_batch_size);
  archive("batch_norm_group_size", plan.batch_norm_group_size);
  archive("even_batch_norm_groups", plan.even_batch_norm_groups);
  archive("reason", plan.reason);
  archive("zero_stage", plan.zero_stage);
  archive("stage_begins", plan.stage_begins);
  archive("predicted_peak_bytes", plan.predicted_peak_bytes);
  archive("validation_images", plan.validation_images);
  archive("predicted_phase_bytes", plan.predicted_phase_bytes);
}

wire::Plan to_wire(const plan::Plan& whole_plan) {
  plan::Plan plan = whole_plan;
  const std::vector<int> equal_ranks = join_equal_ranks(plan);
  auto message = to_message<wire::Plan>(plan);
  message.mutable_predicted_ranks()->Add(equal_ranks.begin(),
                                         equal_ranks.end());
  switch (plan.backend) {
    case plan::Backend::kGloo:
      message.set_backend(wire::BACKEND_GLOO);
      break;
    case plan::Backend::kNccl:
      message.set_backend(wire::BACKEND_NCCL);
      break;
    case plan::Backend::kMpi:
      message.set_backend(wire::BACKEND_MPI);
      break;
    case plan::Backend::kAuto:
      HEADROOM_CHECK(false, "a plan's backend is decided before it is sent");
  }
  for (const plan::ActivationPolicy policy : plan.activation_policies) {
    message.add_activation_policies(to_wire(policy));
  }
  return message;
}

plan::Plan from_wire(const wire::Plan& message) {
  auto plan = from_message<plan::Plan>(message);
  part_equal_ranks(message, plan);
  switch (message.backend()) {
    case wire::BACKEND_GLOO:
      plan.backend = plan::Backend::kGloo;
      break;
    case wire::BACKEND_NCCL:
      plan.backend = plan::Backend::kNccl;
      break;
    case wire::BACKEND_MPI:
      plan.backend = plan::Backend::kMpi;
      break;
    default:
      throw bad_field("backend", message.backend(),
                      "this build does not know it");
  }
  check_samples("micro_batch_size", plan.micro_batch_size);
  check_samples("batch_norm_group_size", plan.batch_norm_group_size);
  if (plan.zero_stage < 0 || plan.zero_stage > plan::kMaxZeroStage) {
    throw bad_field("zero_stage", plan.zero_stage,
                    cat("ZeRO has the stages 0 to ", plan::kMaxZeroStage));
  }
  if (const auto why = plan::stage_begins_error(
          plan.stage_begins, plan.layout.pipeline_parallel_size)) {
    throw Error("wire", "stage_begins: " + *why,
                "install the same build on every node");
  }
  check_predictions(plan);
  if (plan.validation_images != 0) {
    check_samples("validation_images", plan.validation_images);
  }
  if (message.activation_policies_size() > plan::kMaxLayers) {
    throw bad_field("activation_policies", message.activation_policies_size(),
                    cat("a model has at most ", plan::kMaxLayers, " layers"));
  }
  for (const int policy : message.activation_policies()) {
    plan.activation_policies.push_back(policy_from_wire(policy));
  }
  return plan;
}

void fields(auto& archive, Either<RunProgress> auto& progress) {
  archive("step", progress.step);
  archive("num_steps", progress.num_steps);
  archive("epoch", progress.epoch);
  archive("num_epochs", progress.num_epochs);
  archive("step_in_epoch", progress.step_in_epoch);
  archive("steps_per_epoch", progress.steps_per_epoch);
  archive("box", progress.box);
  archive("obj", progress.obj);
  archive("cls", progress.cls);
  archive("images_per_second", progress.images_per_second);
  archive("measured_peak_bytes", progress.measured_peak_bytes);
  archive("predicted_peak_bytes", progress.predicted_peak_bytes);
  archive("phase", progress.phase, kLastWorkerPhase);
  archive("image_height", progress.image_height);
  archive("image_width", progress.image_width);
  archive("quiet_ms", progress.quiet_ms);
  archive("median_step_ms", progress.median_step_ms);
  archive("images_validated", progress.images_validated);
  archive("images_to_validate", progress.images_to_validate);
}

wire::Progress to_wire(const RunProgress& progress) {
  return to_message<wire::Progress>(progress);
}

RunProgress from_wire(const wire::Progress& message) {
  return from_message<RunProgress>(message);
}

// All but the kind, which has a name on the wire.
void fields(auto& archive, Either<EventRecord> auto& record) {
  archive("sequence", record.sequence);
  archive("step", record.step);
  archive("rank", record.rank);
  archive("reason", record.reason);
  archive("detail_json", record.detail_json);
  archive("warning", record.warning);
  archive("time", record.time);
  archive("report", record.report);
  archive("reporter", record.reporter);
  archive("ends_run", record.ends_run);
}

wire::Event to_wire(const EventRecord& record) {
  auto message = to_message<wire::Event>(record);
  message.set_event(to_string(record.event));
  return message;
}

EventRecord from_wire(const wire::Event& message) {
  auto record = from_message<EventRecord>(message);
  const auto kind = parse_event_kind(message.event());
  if (!kind) {
    throw Error("wire",
                "an event of the unknown kind '" +
                    printable(message.event().substr(0, 64)) + "'",
                "install the same build on every node");
  }
  record.event = *kind;
  return record;
}

void fields(auto& archive, Either<headroom::MemoryShortfall> auto& shortfall) {
  archive("asked_bytes", shortfall.asked_bytes);
  archive("free_bytes", shortfall.free_bytes);
  archive("limit_bytes", shortfall.limit_bytes);
  archive("room_bytes", shortfall.room_bytes);
}

wire::Shortfall to_wire(const headroom::MemoryShortfall& shortfall) {
  return to_message<wire::Shortfall>(shortfall);
}

headroom::MemoryShortfall from_wire(const wire::Shortfall& message) {
  return from_message<headroom::MemoryShortfall>(message);
}

void fields(auto& archive, Either<NodeCard> auto& card) {
  archive("index", card.index);
  archive("uuid", card.uuid);
  archive("bus_address", card.bus_address);
  archive("name", card.name);
  archive("compute_capability", card.compute_capability);
  archive("total_bytes", card.total_bytes);
  archive("trouble", card.trouble);
}

wire::RegisteredCard to_wire(const NodeCard& card) {
  return to_message<wire::RegisteredCard>(card);
}

NodeCard from_wire(const wire::RegisteredCard& message) {
  return from_message<NodeCard>(message);
}

void fields(auto& archive, Either<NodeRegistration> auto& node) {
  archive("node_id", node.node_id);
  archive("hostname", node.hostname);
  archive("launcher_rank", node.launcher_rank);
  archive("worker_ids", node.worker_ids);
  archive("cards", node.cards);
  archive("no_card_reason", node.no_card_reason);
  archive("unusable_cards", node.unusable_cards);
  archive("launcher_size", node.launcher_size);
  archive("first_local_slot", node.first_local_slot);
}

wire::RegisterRequest to_wire(const NodeRegistration& node) {
  return to_message<wire::RegisterRequest>(node);
}

NodeRegistration from_wire(const wire::RegisterRequest& message) {
  return from_message<NodeRegistration>(message);
}

void fields(auto& archive, Either<RegisteredRun> auto& run) {
  archive("run_digest", run.run_digest);
  archive("run_config_yaml", run.run_config_yaml);
  archive("run_directory", run.run_directory);
  archive("slot_cards", run.slot_cards);
}

wire::RegisterResponse to_wire(const RegisteredRun& run) {
  return to_message<wire::RegisterResponse>(run);
}

RegisteredRun from_wire(const wire::RegisterResponse& message) {
  return from_message<RegisteredRun>(message);
}

void fields(auto& archive, Either<WorkerExit> auto& exit) {
  archive("node_id", exit.node_id);
  archive("worker_id", exit.worker_id);
  archive("exit_code", exit.exit_code);
  archive("last_words", exit.last_words);
}

wire::ReportExitRequest to_wire(const WorkerExit& exit) {
  return to_message<wire::ReportExitRequest>(exit);
}

WorkerExit from_wire(const wire::ReportExitRequest& message) {
  return from_message<WorkerExit>(message);
}

void fields(auto& archive, Either<SuccessorOrder> auto& order) {
  archive("restart", order.restart);
  archive("delay_ms", order.delay);
  archive("reason", order.reason);
}

wire::ReportExitResponse to_wire(const SuccessorOrder& order) {
  return to_message<wire::ReportExitResponse>(order);
}

SuccessorOrder from_wire(const wire::ReportExitResponse& message) {
  return from_message<SuccessorOrder>(message);
}

void fields(auto& archive, Either<headroom::Card> auto& card) {
  archive("uuid", card.uuid);
  archive("name", card.name);
  archive("bus_address", card.bus_address);
}

void fields(auto& archive, Either<headroom::CardFault> auto& fault) {
  archive("kind", fault.kind, headroom::CardFault::Kind::kLeftOut);
  archive("card", fault.card);
  archive("words", fault.words);
}

wire::Card to_wire(const headroom::Card& card) {
  return to_message<wire::Card>(card);
}

headroom::Card from_wire(const wire::Card& message) {
  return from_message<headroom::Card>(message);
}

wire::CardFault to_wire(const headroom::CardFault& fault) {
  return to_message<wire::CardFault>(fault);
}

headroom::CardFault from_wire(const wire::CardFault& message) {
  return from_message<headroom::CardFault>(message);
}

void fields(auto& archive, Either<WorkerFailure> auto& failure) {
  archive("exit_code", failure.exit_code);
  archive("message", failure.message);
  archive("kind", failure.kind, FailureKind::kConnection);
  archive("is_leaner", failure.is_leaner);
  archive("can_go_on", failure.can_go_on);
  archive("recorded_epochs", failure.recorded_epochs);
  archive("committed_steps", failure.committed_steps);
  archive("holds_a_part", failure.holds_a_part);
  archive("checkpoint_steps", failure.checkpoint_steps);
  archive("card_fault", failure.card_fault);
}

wire::ReportFailureRequest to_wire(const WorkerFailure& failure) {
  return to_message<wire::ReportFailureRequest>(failure);
}

WorkerFailure from_wire(const wire::ReportFailureRequest& message) {
  return from_message<WorkerFailure>(message);
}

void fields(auto& archive, Either<LeftGeneration> auto& left) {
  archive("was_asked", left.was_asked);
  archive("committed_steps", left.committed_steps);
  archive("holds_a_part", left.holds_a_part);
  archive("checkpoint_steps", left.checkpoint_steps);
  archive("checkpoint", left.checkpoint);
  archive("result_json", left.result_json);
  archive("failed_rank", left.failed_rank);
  archive("shortfall", left.shortfall);
}

wire::LeaveGenerationRequest to_wire(const LeftGeneration& left) {
  return to_message<wire::LeaveGenerationRequest>(left);
}

LeftGeneration from_wire(const wire::LeaveGenerationRequest& message) {
  return from_message<LeftGeneration>(message);
}

void fields(auto& archive, Either<FinishedRun> auto& finished) {
  archive("exit_code", finished.exit_code);
  archive("reason", finished.reason);
  archive("result_json", finished.result_json);
  archive("step", finished.step);
  archive("says_how_to_go_on", finished.says_how_to_go_on);
}

wire::FinishRequest to_wire(const FinishedRun& finished) {
  return to_message<wire::FinishRequest>(finished);
}

FinishedRun from_wire(const wire::FinishRequest& message) {
  return from_message<FinishedRun>(message);
}

void fields(auto& archive, Either<RankAssignment> auto& assignment) {
  archive("rank", assignment.rank);
  archive("local_rank", assignment.local_rank);
  archive("local_world_size", assignment.local_world_size);
  archive("world_size", assignment.world_size);
  archive("has_one_agent", assignment.has_one_agent);
  archive("keeps_state", assignment.keeps_state);
  archive("plan", assignment.plan);
  archive("run_config_yaml", assignment.run_config_yaml);
  archive("run_directory", assignment.run_directory);
  archive("resume_checkpoint", assignment.resume_checkpoint);
  archive("resume_steps", assignment.resume_steps);
  archive("left_out_cards", assignment.left_out_cards);
  archive("card_uuid", assignment.card_uuid);
}

wire::Assignment to_wire(const RankAssignment& assignment) {
  return to_message<wire::Assignment>(assignment);
}

RankAssignment from_wire(const wire::Assignment& message) {
  return from_message<RankAssignment>(message);
}

void check_assignment(const wire::Assignment& message) {
  switch (message.action()) {
    case wire::ACTION_WAIT:
    case wire::ACTION_EXIT:
      return;
    case wire::ACTION_RUN:
    case wire::ACTION_SAVE_AND_EXIT:
      break;
    default:
      throw bad_field("action", message.action(),
                      "this build does not know it");
  }
  if (message.stamp().generation() < 1) {
    throw bad_field("generation", 0, "generations count from 1");
  }
  if (message.world_size() < 1 || message.world_size() > kMaxWorldSize) {
    throw bad_field("world_size", message.world_size(),
                    cat("a run has 1 to ", kMaxWorldSize, " ranks"));
  }
  if (message.rank() < 0 || message.rank() >= message.world_size()) {
    throw bad_field("rank", message.rank(),
                    cat("world_size is ", message.world_size()));
  }
  if (message.local_world_size() < 1 ||
      message.local_world_size() > message.world_size()) {
    throw bad_field("local_world_size", message.local_world_size(),
                    cat("world_size is ", message.world_size()));
  }
  if (message.local_rank() < 0 || message.local_rank() >= kMaxWorldSize) {
    throw bad_field("local_rank", message.local_rank(),
                    cat("a machine has at most ", kMaxWorldSize, " workers"));
  }
  const plan::ParallelLayout layout = from_wire(message.plan().layout());
  if (layout.world_size() != message.world_size()) {
    throw bad_field("world_size", message.world_size(),
                    cat("the plan's layout ", plan::to_string(layout), " has ",
                        layout.world_size(), " ranks"));
  }
}

}  // namespace headroom::wire
