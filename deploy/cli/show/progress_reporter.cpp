#include "deploy/cli/show/progress_reporter.h"

#include "deploy/cli/show/progress_line.h"

namespace headroom::cli {
namespace {

constexpr auto kShortestPause = std::chrono::seconds(10);
constexpr auto kLongestPause = std::chrono::seconds(60);

double seconds_between(coordinator::TimePoint from, coordinator::TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::optional<double> EtaEstimate::update(const wire::RunProgress& progress,
                                          coordinator::TimePoint now) {
  if (progress.num_steps == 0) return std::nullopt;
  if (!first_time_) {
    first_time_ = now;
    first_step_ = progress.step;
  }
  const double steps = static_cast<double>(progress.step - first_step_);
  if (steps <= 0) return std::nullopt;
  return seconds_between(*first_time_, now) / steps *
         static_cast<double>(progress.num_steps - progress.step);
}

bool ProgressReporter::is_time_for_a_line(coordinator::TimePoint now,
                                          bool epoch_ended) const {
  if (!last_line_) return true;
  return now - *last_line_ >= (epoch_ended ? kShortestPause : kLongestPause);
}

ProgressReporter::Output ProgressReporter::update(
    const wire::RunProgress& progress, size_t width,
    coordinator::TimePoint now) {
  last_ = progress;
  const std::optional<double> eta = eta_.update(progress, now);
  Output output;
  if (on_terminal_) {
    output.live = progress_line(progress, eta, width);
    return output;
  }
  if (progress.step == 0) return output;
  const bool epoch_ended = progress.step_in_epoch == progress.steps_per_epoch &&
                           progress.epoch != last_printed_epoch_;
  const bool run_ended = epoch_ended && progress.step == progress.num_steps;
  if (run_ended || is_time_for_a_line(now, epoch_ended)) {
    wire::RunProgress told = progress;
    told.phase = "train";  // what goes on besides is no news a minute later
    output.lines.push_back(progress_line(told, eta, 0));
    last_line_ = now;
    if (epoch_ended) last_printed_epoch_ = progress.epoch;
  }
  return output;
}

ProgressReporter::Output ProgressReporter::warning(
    const wire::EventRecord& event) {
  Output output;
  if (event.event == "fault") {
    faults_.push_back(event);
    return output;
  }
  for (const wire::EventRecord& fault : faults_) {
    const bool is_the_end =
        event.event == wire::kRunOverEvent &&
        event.reason.find(fault.reason) != std::string::npos;
    if (!is_the_end) output.lines.push_back(event_line(fault));
  }
  faults_.clear();
  // The end itself is told by whoever waits for it.
  if (event.warning && event.event != wire::kRunOverEvent) {
    output.lines.push_back(event_line(event));
  }
  return output;
}

ProgressReporter::Output ProgressReporter::event(const wire::EventRecord& event,
                                                 coordinator::TimePoint now) {
  if (event.event != "validation") return warning(event);
  Output output;
  // In a log an epoch has its two lines or none.
  const bool last = last_.num_steps > 0 && event.step >= last_.num_steps;
  const bool epoch_was_told = last_printed_epoch_ == last_.epoch;
  if (on_terminal_ || last || epoch_was_told || is_time_for_a_line(now, true)) {
    output.lines.push_back(validation_line(event, last_.num_epochs));
    last_line_ = now;
  }
  return output;
}

}  // namespace headroom::cli
