#include "parallel/base/tool_progress.h"

#include <chrono>
#include <utility>

namespace headroom {
namespace {

constexpr double kSecondsOnTerminal = 0.1;
// Without a terminal, no progress line is printed in the first kQuietSeconds,
// nor within this time after a line of the tool.
constexpr double kQuietSeconds = 10;
constexpr double kLongestSilence = 60;

}  // namespace

ToolProgress::Output ToolProgress::standard_error() {
  return {.terminal = Terminal::standard_error(), .now = [] {
            return std::chrono::duration<double>(
                       std::chrono::steady_clock::now().time_since_epoch())
                .count();
          }};
}

ToolProgress::ToolProgress(Output output)
    : output_(std::move(output)),
      terminal_(output_.terminal),
      started_at_(output_.now()),
      said_at_(started_at_) {}

void ToolProgress::step(const std::string& what, int64_t total) {
  const std::lock_guard lock(mutex_);
  show(what, what == what_ ? done_ + 1 : 1, total, "image");
}

void ToolProgress::reach(const std::string& what, int64_t done, int64_t total,
                         const std::string& noun) {
  const std::lock_guard lock(mutex_);
  show(what, done, total, noun);
}

void ToolProgress::begin(const std::string& what, int64_t known) {
  const std::lock_guard lock(mutex_);
  if (what != what_) change_to(what, known, output_.now());
}

void ToolProgress::change_to(const std::string& what, int64_t known,
                             double began_at) {
  what_ = what;
  done_ = known;
  pace_ = Pace();
  pace_.note(known, began_at);
  said_tenths_ = 0;
}

void ToolProgress::show(const std::string& what, int64_t done, int64_t total,
                        const std::string& noun) {
  const double now = output_.now();
  if (what != what_) change_to(what, 0, what_.empty() ? started_at_ : now);
  done_ = done;
  pace_.note(done, now);
  Progress progress = pace_.of(total);
  progress.label = what;
  progress.noun = noun;
  if (terminal_.style().rewrites_lines) {
    if (now - said_at_ < kSecondsOnTerminal) return;
    said_at_ = now;
    terminal_.set_live(
        progress_bar(progress, terminal_.width(), terminal_.style()));
    return;
  }
  const double quiet_since = output_.has_own_lines ? said_at_ : started_at_;
  if (now - quiet_since < kQuietSeconds) return;
  const int64_t tenths = progress.tenths();
  if (tenths <= said_tenths_ && now - said_at_ < kLongestSilence) return;
  said_at_ = now;
  said_tenths_ = tenths;
  terminal_.print(progress_words(progress));
}

void ToolProgress::above(const std::function<void()>& print) {
  const std::lock_guard lock(mutex_);
  terminal_.above(print);
  if (!terminal_.style().rewrites_lines) said_at_ = output_.now();
}

}  // namespace headroom
