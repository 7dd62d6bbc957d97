#include "deploy/cli/show/status_table.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "deploy/cli/show/progress_line.h"
#include "deploy/cli/show/text_table.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/plan_json.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string seconds_text(double seconds) {
  return fixed_text(seconds, 1) + " s";
}

std::string plan_text(const plan::Plan& plan) {
  return cat(
      plan::to_string(plan.layout), ", micro-batch ", plan.micro_batch_size,
      ", batch-norm groups of ", plan.even_batch_norm_groups ? "about " : "",
      plan.batch_norm_group_size,
      plan.zero_stage > 0 ? cat(", ZeRO ", plan.zero_stage) : "",
      plan.activation_policies.empty()
          ? ""
          : ", activations " + plan::activations_text(plan.activation_policies),
      ", ", plan::to_string(plan.backend));
}

Json progress_json(const wire::RunProgress& progress) {
  Json json = {{"step", progress.step},
               {"num_steps", progress.num_steps},
               {"epoch", progress.epoch},
               {"num_epochs", progress.num_epochs},
               {"step_in_epoch", progress.step_in_epoch},
               {"steps_per_epoch", progress.steps_per_epoch},
               {"images_per_second", progress.images_per_second},
               {"measured_peak_bytes", progress.measured_peak_bytes},
               {"predicted_peak_bytes", progress.predicted_peak_bytes},
               {"image_height", progress.image_height},
               {"image_width", progress.image_width},
               {"images_validated", progress.images_validated},
               {"images_to_validate", progress.images_to_validate},
               {"phase", to_string(progress.phase)}};
  for (const NamedLoss& loss : progress.losses) json[loss.name] = loss.value;
  return json;
}

Json member_json(const coordinator::MemberStatus& member) {
  return {{"worker_id", member.worker_id},
          {"node_id", member.node_id},
          {"hostname", member.hostname},
          {"rank", member.rank},
          {"heartbeat_age_seconds", member.heartbeat_age_seconds},
          {"state", to_string(member.state)},
          {"measured_peak_bytes", member.measured_peak_bytes}};
}

Json event_json(const wire::EventRecord& event) {
  Json json = {{"sequence", event.sequence},
               {"time", event.time},
               {"event", to_string(event.event)},
               {"step", event.step},
               {"rank", event.rank},
               {"reason", event.reason},
               {"warning", event.warning}};
  Json detail = Json::parse(event.detail_json, nullptr, false);
  if (detail.is_object()) json["detail"] = detail;
  return json;
}

}  // namespace

std::string folder_text(const coordinator::RunStatus& status) {
  return status.run_directory +
         (is_elsewhere(status.run_directory, status.folder)
              ? " on " + status.folder.hostname
              : "");
}

std::string status_table(const coordinator::RunStatus& status) {
  std::string text =
      cat("run        ", folder_text(status), "\nstate      ",
          to_string(status.state), ", generation ", status.generation,
          status.reason.empty() ? "" : ": " + status.reason, "\n");
  if (status.plan) {
    text += "plan       " + plan_text(*status.plan) +
            (status.plan->reason.empty() ? "" : ": " + status.plan->reason) +
            "\n";
  }
  for (const coordinator::LeftOutCard& card : status.left_out_cards) {
    text += "left out   " + coordinator::to_string(card) + "\n";
  }
  text += cat("progress   step ", status.progress.step, "/",
              status.progress.num_steps, "  ",
              progress_line(status, std::nullopt), "\n\n");
  std::vector<std::vector<std::string>> rows = {
      {"rank", "state", "heartbeat", "peak", "host", "worker"}};
  for (const coordinator::MemberStatus& member : status.members) {
    rows.push_back({member.rank < 0 ? "-" : std::to_string(member.rank),
                    to_string(member.state),
                    member.state == coordinator::MemberActivity::kExpected
                        ? "-"
                        : seconds_text(member.heartbeat_age_seconds),
                    member.measured_peak_bytes > 0
                        ? format_bytes(member.measured_peak_bytes)
                        : "-",
                    member.hostname, member.worker_id});
  }
  text += text_table(rows) + "\n";
  for (const wire::EventRecord& event : status.events) {
    text += event.time + "  " + padded(to_string(event.event), 11) + " " +
            event_line(event) + "\n";
  }
  return text;
}

std::string status_json(const coordinator::RunStatus& status) {
  Json json = {{"version", status.version},
               {"run_digest", status.run_digest},
               {"generation", status.generation},
               {"state", to_string(status.state)},
               {"reason", status.reason},
               {"exit_code", status.exit_code},
               {"run_directory", status.run_directory},
               {"folder_host", status.folder.hostname},
               {"memory_limit", status.memory_limit},
               {"progress", progress_json(status.progress)},
               {"members", Json::array()},
               {"left_out_cards", Json::array()},
               {"events", Json::array()}};
  for (const coordinator::LeftOutCard& card : status.left_out_cards) {
    json["left_out_cards"].push_back({{"uuid", card.card.uuid},
                                      {"name", card.card.name},
                                      {"bus_address", card.card.bus_address},
                                      {"hostname", card.hostname},
                                      {"reason", card.reason}});
  }
  for (const coordinator::MemberStatus& member : status.members) {
    json["members"].push_back(member_json(member));
  }
  if (status.plan) {
    json["plan"] = {
        {"layout", plan::to_string(status.plan->layout)},
        {"micro_batch_size", status.plan->micro_batch_size},
        {"batch_norm_group_size", status.plan->batch_norm_group_size},
        {"even_batch_norm_groups", status.plan->even_batch_norm_groups},
        {"zero_stage", status.plan->zero_stage},
        {"stage_begins", status.plan->stage_begins},
        {"activations",
         plan::activations_text(status.plan->activation_policies)},
        {"backend", plan::to_string(status.plan->backend)},
        {"reason", status.plan->reason}};
  }
  Json result = Json::parse(status.result_json, nullptr, false);
  if (result.is_object()) json["result"] = result;
  for (const wire::EventRecord& event : status.events) {
    json["events"].push_back(event_json(event));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace headroom::cli
