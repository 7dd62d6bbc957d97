#include "worker/tools/tool_progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "parallel/base/units.h"

namespace headroom::tools {
namespace {

constexpr double kSecondsOnTerminal = 0.1;
constexpr double kSecondsElsewhere = 10;

}  // namespace

ToolProgress::Output ToolProgress::standard_error() {
  return {.is_terminal = ::isatty(STDERR_FILENO) == 1,
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
              }};
}

ToolProgress::ToolProgress(Output output)
    : output_(std::move(output)), said_at_(output_.now()) {}

void ToolProgress::step(const std::string& what, int64_t total) {
  const std::lock_guard lock(mutex_);
  if (what != what_) {
    what_ = what;
    done_ = 0;
  }
  ++done_;
  const double now = output_.now();
  if (now - said_at_ <
      (output_.is_terminal ? kSecondsOnTerminal : kSecondsElsewhere)) {
    return;
  }
  said_at_ = now;
  const std::string text =
      what_ + ": " + std::to_string(done_) + " of " + counted(total, "image");
  output_.write(output_.is_terminal ? "\r" + text + "\x1b[K" : text + "\n");
  is_shown_ = output_.is_terminal;
}

void ToolProgress::clear() {
  const std::lock_guard lock(mutex_);
  if (is_shown_) output_.write("\r\x1b[K");
  is_shown_ = false;
}

}  // namespace headroom::tools
