#include "worker/tools/tool_progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "parallel/base/progress_bar.h"

namespace headroom::tools {
namespace {

constexpr double kSecondsOnTerminal = 0.1;
// Without a terminal: no line this soon after the start or a tool's line.
constexpr double kQuietSeconds = 10;
constexpr double kLongestSilence = 60;

constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

ToolProgress::Output ToolProgress::standard_error() {
  return {.style = terminal_style_of(STDERR_FILENO),
          .write =
              [](const std::string& text) {
                std::fputs(text.c_str(), stderr);
                std::fflush(stderr);
              },
          .now =
              [] {
                return std::chrono::duration<double>(
                           std::chrono::steady_clock::now().time_since_epoch())
                    .count();
              },
          .columns = [] { return terminal_size_of(STDERR_FILENO).columns; }};
}

ToolProgress::ToolProgress(Output output)
    : output_(std::move(output)),
      started_at_(output_.now()),
      began_at_(started_at_),
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
  began_at_ = began_at;
  done_ = known_ = known;
  said_tenths_ = 0;
}

void ToolProgress::show(const std::string& what, int64_t done, int64_t total,
                        const std::string& noun) {
  const double now = output_.now();
  if (what != what_) change_to(what, 0, what_.empty() ? started_at_ : now);
  done_ = done;
  BarProgress progress =
      mean_progress(what, done - known_, total - known_, now - began_at_);
  progress.done = done;
  progress.total = total;
  progress.noun = noun;
  if (output_.style.rewrites_lines) {
    if (now - said_at_ < kSecondsOnTerminal) return;
    said_at_ = now;
    shown_ = progress_bar(progress, output_.columns(), output_.style);
    output_.write(kClearLine + shown_);
    return;
  }
  const double quiet_since = output_.has_own_lines ? said_at_ : started_at_;
  if (now - quiet_since < kQuietSeconds) return;
  const int64_t tenths = total > 0 ? 10 * done / total : 0;
  if (tenths <= said_tenths_ && now - said_at_ < kLongestSilence) return;
  said_at_ = now;
  said_tenths_ = tenths;
  output_.write(progress_words(progress) + "\n");
}

void ToolProgress::clear() {
  const std::lock_guard lock(mutex_);
  if (!shown_.empty()) output_.write(kClearLine);
  shown_.clear();
}

void ToolProgress::above(const std::function<void()>& print) {
  const std::lock_guard lock(mutex_);
  if (!shown_.empty()) output_.write(kClearLine);
  print();
  if (!output_.style.rewrites_lines) said_at_ = output_.now();
  if (!shown_.empty()) output_.write(shown_);
}

}  // namespace headroom::tools
