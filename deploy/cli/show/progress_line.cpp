#include "deploy/cli/show/progress_line.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::cli {
namespace {

std::string epoch_of(int64_t epoch, int64_t num_epochs) {
  return "epoch " + std::to_string(epoch + 1) + "/" +
         std::to_string(num_epochs);
}

std::string size_or_dash(int64_t bytes) {
  return bytes > 0 ? format_bytes(bytes) : "-";
}

// Whole seconds: a live line that shows milliseconds flickers.
std::string whole_seconds(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const std::string s = std::to_string(total % 60) + "s";
  if (total < 60) return s;
  const std::string ms = std::to_string(total / 60 % 60) + "m";
  if (total < 3600) return ms + s;
  return std::to_string(total / 3600) + "h" + ms;
}

std::string cut(std::string line, size_t width) {
  if (width == 0 || line.size() <= width) return line;
  const size_t space = line.rfind(' ', width - 1);
  line.resize(space == std::string::npos ? width - 1 : space);
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line + "…";
}

std::string losses_text(double box, double obj, double cls) {
  return "  box " + fixed_text(box, 3) + " obj " + fixed_text(obj, 3) +
         " cls " + fixed_text(cls, 3) + "  ";
}

// What a rank's steps are predicted to need: rank 0 says it of its newest one,
// the plan of all.
int64_t predicted_bytes(const coordinator::RunStatus& status, int rank) {
  if (rank == 0) return status.progress.predicted_peak_bytes;
  const auto index = static_cast<size_t>(rank);
  return status.plan && index < status.plan->predicted_phase_bytes.size()
             ? status.plan->predicted_phase_bytes[index].training
             : 0;
}

std::string memory_text(const coordinator::RunStatus& status) {
  int worst = 0, ranks = 0;
  int64_t bytes = status.progress.measured_peak_bytes;
  for (const coordinator::MemberStatus& member : status.members) {
    if (member.rank < 0 || member.state == coordinator::MemberActivity::kGone)
      continue;
    ++ranks;
    // Rank 0's heartbeat may be of an earlier step than its progress.
    const bool is_known =
        member.rank == 0 && status.progress.measured_peak_bytes > 0;
    if (is_known || member.measured_peak_bytes <= bytes) continue;
    worst = member.rank;
    bytes = member.measured_peak_bytes;
  }
  return (ranks > 1 ? "rank " + std::to_string(worst) + ": " : "") +
         size_or_dash(bytes) +
         (status.memory_limit > 0 ? " of " + format_bytes(status.memory_limit)
                                  : "") +
         " (predicted " + size_or_dash(predicted_bytes(status, worst)) + ")";
}

std::string eta_text(std::optional<double> seconds) {
  // Nothing is left to wait for where it rounds to none.
  return seconds && *seconds >= 0.5 ? "  ETA " + whole_seconds(*seconds) : "";
}

bool has_numbers(const nlohmann::json& detail,
                 std::initializer_list<const char*> keys) {
  return detail.is_object() &&
         std::all_of(keys.begin(), keys.end(), [&](const char* key) {
           return detail.contains(key) && detail[key].is_number();
         });
}

}  // namespace

std::string progress_line(const coordinator::RunStatus& status,
                          std::optional<double> eta_seconds, size_t width) {
  const wire::RunProgress& progress = status.progress;
  // A validation alone.
  if (progress.num_epochs == 0 && progress.num_steps > 0) {
    return cut("validating  " + std::to_string(progress.step) + "/" +
                   counted(progress.num_steps, "image") + "  " +
                   fixed_text(progress.images_per_second, 1) + " img/s" +
                   eta_text(eta_seconds),
               width);
  }
  if (progress.num_epochs == 0) return "starting";
  std::string line = epoch_of(progress.epoch, progress.num_epochs) + "  " +
                     std::to_string(progress.step_in_epoch) + "/" +
                     std::to_string(progress.steps_per_epoch);
  if (progress.phase == wire::WorkerPhase::kValidate) line += "  validating";
  if (progress.phase == wire::WorkerPhase::kCheckpoint) line += "  saving";
  line += losses_text(progress.box, progress.obj, progress.cls) +
          fixed_text(progress.images_per_second, 1) + " img/s  " +
          memory_text(status) + eta_text(eta_seconds);
  return cut(line, width);
}

std::string epoch_line(const wire::EventRecord& event,
                       const coordinator::RunStatus& status,
                       std::optional<double> eta_seconds) {
  const auto detail = nlohmann::json::parse(event.detail_json, nullptr, false);
  if (!has_numbers(detail, {"epoch", "num_epochs", "box", "obj", "cls", "steps",
                            "images", "seconds"})) {
    return event.reason;
  }
  const auto number = [&](const char* key) {
    return detail[key].get<double>();
  };
  const auto count = [&](const char* key) {
    return detail[key].get<int64_t>();
  };
  std::string line = epoch_of(count("epoch"), count("num_epochs")) +
                     losses_text(number("box"), number("obj"), number("cls"));
  // None where an earlier process took the steps.
  if (count("images") > 0) {
    line += counted(count("steps"), "step") + ", " +
            counted(count("images"), "image") + " in " +
            fixed_text(number("seconds"), 1) + "s  ";
  }
  return line + memory_text(status) + eta_text(eta_seconds);
}

std::string validation_line(const wire::EventRecord& event,
                            int64_t num_epochs) {
  const auto detail = nlohmann::json::parse(event.detail_json, nullptr, false);
  if (!has_numbers(detail, {"epoch", "precision", "recall", "map50", "map"})) {
    return event.reason;
  }
  auto number = [&](const char* key) {
    return fixed_text(detail[key].get<double>(), 3);
  };
  return epoch_of(detail["epoch"].get<int64_t>(), num_epochs) + "  P " +
         number("precision") + " R " + number("recall") + " mAP50 " +
         number("map50") + " mAP " + number("map");
}

std::string event_line(const wire::EventRecord& event) {
  std::string line = event.warning ? "warning: " : "";
  if (event.step > 0) line += "step " + std::to_string(event.step) + ", ";
  if (event.rank >= 0) line += "rank " + std::to_string(event.rank) + ", ";
  if (line.ends_with(", ")) line.replace(line.size() - 2, 2, ": ");
  return line + event.reason;
}

}  // namespace headroom::cli
