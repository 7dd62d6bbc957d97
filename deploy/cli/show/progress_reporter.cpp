#include "deploy/cli/show/progress_reporter.h"

#include "deploy/cli/show/progress_line.h"

namespace headroom::cli {
namespace {

// The least time between two lines of one epoch.
constexpr auto kPause = std::chrono::seconds(60);
// How long to wait for a validation's event, which may arrive after the status.
constexpr auto kValidationPatience = std::chrono::seconds(2);
constexpr int64_t kLinesAHeader = 20;

}  // namespace

// Whether to print a line about the current epoch now. Log lines keep the order
// of the events: an epoch gets no line before the lines of the previous epoch.
// A resumed run starts in an epoch whose predecessor gets no line.
bool ProgressReporter::is_time_for_a_line(const wire::RunProgress& progress,
                                          coordinator::TimePoint now) const {
  const bool is_next =
      progress.step <= told_steps_ + progress.steps_per_epoch ||
      (told_steps_ == 0 && first_step_ > progress.steps_per_epoch &&
       now - *first_step_time_ >= kPause);
  return is_next && (!last_line_ || now - *last_line_ >= kPause);
}

ProgressReporter::Output ProgressReporter::update(
    const coordinator::RunStatus& status, size_t width,
    coordinator::TimePoint now) {
  last_ = status;
  const wire::RunProgress& progress = status.progress;
  eta_seconds_ = remaining_seconds(progress, now, pace_);
  width_ = width;
  Output output;
  if (on_terminal()) {
    if (waiting_ && progress.step > waiting_step_ &&
        now - waiting_since_ >= kValidationPatience) {
      put_epoch(output);
    }
    // The first epoch's live line has no table above it yet.
    if (header_.empty() && progress.step > 0 && progress.num_epochs > 0) {
      put_header(progress.num_epochs, progress.losses, output);
    }
    output.live = live_line(status, eta_seconds_, width, style_);
    return output;
  }
  if (progress.step == 0) return output;
  if (!first_step_time_) {
    first_step_time_ = now;
    first_step_ = progress.step;
  }
  if (is_time_for_a_line(progress, now)) {
    coordinator::RunStatus told = status;
    // The line appears once a minute, so it does not mention a short phase.
    told.progress.phase = wire::WorkerPhase::kTrain;
    output.lines.push_back(progress_line(told, eta_seconds_));
    last_line_ = now;
  }
  return output;
}

// Adds the table's header if it has changed or is kLinesAHeader lines back.
void ProgressReporter::put_header(int64_t num_epochs, const NamedLosses& losses,
                                  Output& output) {
  const std::string header = epoch_header(num_epochs, losses, width_);
  if (header == header_ && lines_since_header_ < kLinesAHeader) return;
  output.header = header_ = header;
  lines_since_header_ = 0;
}

// Adds the line of the epoch in `waiting_`, if any, below the header.
void ProgressReporter::put_epoch(Output& output) {
  if (!waiting_) return;
  put_header(waiting_->trained.num_epochs, waiting_->trained.losses, output);
  ++lines_since_header_;
  output.lines.push_back(epoch_table_line(*waiting_, width_));
  waiting_.reset();
}

void ProgressReporter::note_on_terminal(const wire::EventRecord& event,
                                        coordinator::TimePoint now,
                                        Output& output) {
  if (event.event == EventKind::kEpoch) {
    put_epoch(output);  // an earlier epoch had no validation
    const std::optional<TrainedEpoch> trained = trained_epoch(event);
    if (!trained) {
      output.lines.push_back(event.reason);
      return;
    }
    waiting_ = EpochLine{.trained = *trained,
                         .memory = fullest_rank(last_),
                         .memory_limit = last_.memory_limit,
                         .eta_seconds = eta_seconds_};
    waiting_step_ = event.step;
    waiting_since_ = now;
    return;
  }
  const std::optional<ValidatedEpoch> validated = validated_epoch(event);
  if (validated && waiting_ && waiting_->trained.epoch == validated->epoch) {
    waiting_->validated = validated;
    put_epoch(output);
    return;
  }
  output.lines.push_back(validation_line(event, last_.progress.num_epochs));
}

ProgressReporter::Output ProgressReporter::finish() {
  Output output;
  put_epoch(output);
  return output;
}

ProgressReporter::Output ProgressReporter::event(const wire::EventRecord& event,
                                                 coordinator::TimePoint now) {
  Output output;
  const bool is_word_for_word =
      event.event == EventKind::kWeights || event.event == EventKind::kNetwork;
  if (is_word_for_word && !event.warning) {  // the reason is the whole line
    output.lines.push_back(event.reason);
    return output;
  }
  if (event.event == EventKind::kData &&
      !event.warning) {  // the size of the data set
    output.lines.push_back("data: " + event.reason);
    return output;
  }
  const bool is_of_an_epoch =
      event.event == EventKind::kEpoch || event.event == EventKind::kValidation;
  if (on_terminal() && is_of_an_epoch) {
    note_on_terminal(event, now, output);
  } else if (event.event == EventKind::kEpoch) {
    output.lines.push_back(epoch_line(event, last_, eta_seconds_));
    told_steps_ = event.step;
  } else if (event.event == EventKind::kValidation) {
    output.lines.push_back(validation_line(event, last_.progress.num_epochs));
  } else {
    // The caller reports the run's end.
    const bool is_the_end =
        event.event == EventKind::kRunOver || event.ends_run;
    const bool is_told = event.warning || event.event == EventKind::kFault;
    if (is_told && !is_the_end) output.lines.push_back(event_line(event));
    return output;
  }
  last_line_ = now;
  return output;
}

}  // namespace headroom::cli
