// The part of RunState that decides which cards and which precision are used.
#include <utility>

#include "coordinator/run/device_choice.h"
#include "coordinator/run/run_state.h"
#include "parallel/base/check.h"
#include "parallel/planner/planner.h"

namespace headroom::coordinator {

std::optional<std::string> RunState::place_on_cards(TimePoint now, Node& node) {
  const bool is_new = membership_.find_node(node.node_id) == nullptr;
  if (!is_new || over()) return std::nullopt;
  std::optional<Error> refusal;
  if (phase_ == RunPhase::kWaiting) {
    refusal = launcher_count_error(node, options_.quorum.expected_workers);
  }
  if (!refusal) {
    SlotCards chosen = choose_slot_cards(config_, node, membership_.nodes(),
                                         cards_.left_out_uuids());
    node.slot_cards = std::move(chosen.cards);
    refusal = chosen.refusal;
  }
  if (!refusal) return std::nullopt;
  if (phase_ == RunPhase::kWaiting && membership_.has_room(node)) {
    end(now, static_cast<int>(refusal->exit_code()), {refusal->what()});
  }
  return refusal->what();
}

void RunState::take_float32(TimePoint now, const std::string& why) {
  config_.precision = configs::Precision::kFp32;
  config_.checks_float16 = false;
  settled_config_yaml_ = configs::to_yaml(config_);
  emit(EventKind::kDevices, -1,
       "precision: fp32, as the check of fp16 failed on " + why, true);
  const planner::PlanDecision planned = planner::plan_or_remedy(
      config_, cycle_.wanted_plan()->layout.world_size(), cycle_.model());
  if (planned.plan) {
    cycle_.want(*planned.plan);
    return;
  }
  end(now, static_cast<int>(planned.exit_code),
      {"the check of fp16 failed on " + why + ", and in fp32 " +
       planned.reason + ": " + planned.remedy});
}

bool RunState::settle_devices(TimePoint now) {
  const DeviceChoice choice = choose_devices(config_, membership_.nodes());
  config_.device = choice.device;
  config_.precision = choice.precision;
  config_.checks_float16 = choice.checks_float16;
  try {
    configs::check_settled_device(config_);
  } catch (const Error& error) {
    end(now, static_cast<int>(error.exit_code()), {error.what()});
    return false;
  }
  settled_config_yaml_ = configs::to_yaml(config_);
  emit(EventKind::kDevices, -1,
       choice.text + (choice.reason.empty() ? "" : ": " + choice.reason) +
           planner::source_note(cycle_.model().card));
  if (!choice.warning.empty()) {
    emit(EventKind::kDevices, -1, choice.warning, true);
  }
  return true;
}

}  // namespace headroom::coordinator
