#include "deploy/cli/show/progress_line.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "deploy/records/run_lines.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::cli {
namespace {

std::string epoch_of(int64_t epoch, int64_t num_epochs) {
  return cat("epoch ", epoch + 1, "/", num_epochs);
}

std::string losses_part(const NamedLosses& losses) {
  return "  " + losses_text(losses, " ") + (losses.empty() ? "" : "  ");
}

}  // namespace

std::string size_or_dash(int64_t bytes) {
  return bytes > 0 ? format_bytes(bytes) : "-";
}

int64_t predicted_bytes(const coordinator::RunStatus& status, int rank) {
  if (rank == 0) return status.progress.predicted_peak_bytes;
  const auto index = static_cast<size_t>(rank);
  return status.plan && index < status.plan->predicted_phase_bytes.size()
             ? status.plan->predicted_phase_bytes[index].training
             : 0;
}

RankBytes fullest_rank(const coordinator::RunStatus& status) {
  RankBytes fullest{.measured = status.progress.measured_peak_bytes};
  for (const coordinator::MemberStatus& member : status.members) {
    if (member.rank < 0 || member.state == coordinator::MemberActivity::kGone)
      continue;
    ++fullest.ranks;
    // Rank 0's heartbeat may describe an earlier step than `progress` does.
    const bool is_known =
        member.rank == 0 && status.progress.measured_peak_bytes > 0;
    if (is_known || member.measured_peak_bytes <= fullest.measured) continue;
    fullest.rank = member.rank;
    fullest.measured = member.measured_peak_bytes;
  }
  fullest.predicted = predicted_bytes(status, fullest.rank);
  return fullest;
}

namespace {

std::string memory_text(const coordinator::RunStatus& status) {
  const RankBytes fullest = fullest_rank(status);
  return (fullest.ranks > 1 ? cat("rank ", fullest.rank, ": ") : "") +
         size_or_dash(fullest.measured) +
         (status.memory_limit > 0 ? " of " + format_bytes(status.memory_limit)
                                  : "") +
         " (predicted " + size_or_dash(fullest.predicted) + ")";
}

std::string eta_text(std::optional<double> seconds) {
  const std::string words = eta_words(seconds);
  return words.empty() ? "" : "  " + words;
}

bool has_numbers(const nlohmann::ordered_json& detail,
                 std::initializer_list<const char*> keys) {
  return detail.is_object() &&
         std::all_of(keys.begin(), keys.end(), [&](const char* key) {
           return detail.contains(key) && detail[key].is_number();
         });
}

}  // namespace

bool is_validation(const coordinator::RunStatus& status) {
  return status.progress.num_epochs == 0 && status.progress.num_steps > 0;
}

std::optional<double> remaining_seconds(const wire::RunProgress& progress,
                                        coordinator::TimePoint now,
                                        Pace& pace) {
  if (progress.num_steps == 0) return std::nullopt;
  pace.note(progress.step,
            std::chrono::duration<double>(now.time_since_epoch()).count());
  return pace.seconds_left(progress.num_steps);
}

Progress progress_of_run(const coordinator::RunStatus& status,
                         std::optional<double> eta_seconds) {
  return {.done = status.progress.step,
          .total = status.progress.num_steps,
          .noun = is_validation(status) ? "image" : "step",
          .per_second = status.progress.images_per_second,
          .rate_unit = " img",
          .seconds_left = eta_seconds};
}

std::string progress_line(const coordinator::RunStatus& status,
                          std::optional<double> eta_seconds) {
  const wire::RunProgress& progress = status.progress;
  if (is_validation(status)) {
    return cat("validating  ", progress.step, "/",
               counted(progress.num_steps, "image"), "  ",
               fixed_text(progress.images_per_second, 1), " img/s",
               eta_text(eta_seconds));
  }
  if (progress.num_epochs == 0) return "starting";
  std::string line = cat(epoch_of(progress.epoch, progress.num_epochs), "  ",
                         progress.step_in_epoch);
  if (progress.steps_per_epoch > 0) {
    line += cat("/", progress.steps_per_epoch);
  }
  if (progress.phase == wire::WorkerPhase::kValidate) line += "  validating";
  if (progress.phase == wire::WorkerPhase::kCheckpoint) line += "  saving";
  line += losses_part(progress.losses) +
          fixed_text(progress.images_per_second, 1) + " img/s  " +
          memory_text(status) + eta_text(eta_seconds);
  return line;
}

std::optional<TrainedEpoch> trained_epoch(const wire::EventRecord& event) {
  const auto detail =
      nlohmann::ordered_json::parse(event.detail_json, nullptr, false);
  if (!has_numbers(detail,
                   {"epoch", "num_epochs", "steps", "images", "seconds"})) {
    return std::nullopt;
  }
  return TrainedEpoch{.epoch = detail["epoch"].get<int64_t>(),
                      .num_epochs = detail["num_epochs"].get<int64_t>(),
                      .losses = records::losses_in(detail),
                      .steps = detail["steps"].get<int64_t>(),
                      .images = detail["images"].get<int64_t>(),
                      .seconds = detail["seconds"].get<double>()};
}

std::optional<ValidatedEpoch> validated_epoch(const wire::EventRecord& event) {
  const auto detail =
      nlohmann::ordered_json::parse(event.detail_json, nullptr, false);
  if (!has_numbers(detail, {"epoch", "precision", "recall", "map50", "map"})) {
    return std::nullopt;
  }
  return ValidatedEpoch{.epoch = detail["epoch"].get<int64_t>(),
                        .precision = detail["precision"].get<double>(),
                        .recall = detail["recall"].get<double>(),
                        .map50 = detail["map50"].get<double>(),
                        .map = detail["map"].get<double>()};
}

std::string epoch_line(const wire::EventRecord& event,
                       const coordinator::RunStatus& status,
                       std::optional<double> eta_seconds) {
  const std::optional<TrainedEpoch> epoch = trained_epoch(event);
  if (!epoch) return event.reason;
  std::string line =
      epoch_of(epoch->epoch, epoch->num_epochs) + losses_part(epoch->losses);
  if (epoch->images > 0) {
    line += counted(epoch->steps, "step") + ", " +
            counted(epoch->images, "image") + " in " +
            fixed_text(epoch->seconds, 1) + "s  ";
  }
  return line + memory_text(status) + eta_text(eta_seconds);
}

std::string validation_line(const wire::EventRecord& event,
                            int64_t num_epochs) {
  const std::optional<ValidatedEpoch> epoch = validated_epoch(event);
  if (!epoch) return event.reason;
  return epoch_of(epoch->epoch, num_epochs) + "  P " +
         fixed_text(epoch->precision, 3) + " R " +
         fixed_text(epoch->recall, 3) + " mAP50 " +
         fixed_text(epoch->map50, 3) + " mAP " + fixed_text(epoch->map, 3);
}

std::string event_line(const wire::EventRecord& event) {
  std::string line = event.warning ? "warning: " : "";
  if (event.step > 0) line += cat("step ", event.step, ", ");
  if (event.rank >= 0) line += cat("rank ", event.rank, ", ");
  if (line.ends_with(", ")) line.replace(line.size() - 2, 2, ": ");
  return line + event.reason;
}

}  // namespace headroom::cli
