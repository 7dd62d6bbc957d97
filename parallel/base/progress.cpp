#include "parallel/base/progress.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom {
namespace {

constexpr size_t kMostCells = 30;
constexpr size_t kFewestCells = 8;
constexpr double kSecondsOnTerminal = 0.1;
// Without a terminal, no progress line is printed in the first kQuietSeconds,
// nor within this time after a line of the tool.
constexpr double kQuietSeconds = 10;
constexpr double kLongestSilence = 60;

double share_of(const Progress& progress) {
  if (progress.total <= 0) return 0;
  return std::clamp(
      static_cast<double>(progress.done) / static_cast<double>(progress.total),
      0.0, 1.0);
}

// Rounded down, so that 100 appears only when all is done.
std::string percent_of(const Progress& progress) {
  return std::to_string(
      static_cast<int64_t>(std::floor(100 * share_of(progress))));
}

std::string rate_of(const Progress& progress) {
  if (progress.per_second <= 0) return "";
  if (progress.noun == kBytes) {
    return format_bytes(static_cast<int64_t>(progress.per_second)) + "/s";
  }
  return fixed_text(progress.per_second, 1) + progress.rate_unit + "/s";
}

// "4", or "3.9 MiB".
std::string bare_count_of(const Progress& progress, int64_t count) {
  return progress.noun == kBytes ? format_bytes(count) : std::to_string(count);
}

// "4 images", or "3.9 MiB".
std::string count_of(const Progress& progress, int64_t count) {
  return progress.noun.empty() || progress.noun == kBytes
             ? bare_count_of(progress, count)
             : counted(count, progress.noun);
}

// The parts after the bar: the count, then rate and remaining time if known.
std::vector<std::string> parts_of(const Progress& progress) {
  std::vector<std::string> parts;
  parts.push_back(progress.total <= 0
                      ? count_of(progress, progress.done)
                      : bare_count_of(progress, progress.done) + "/" +
                            count_of(progress, progress.total));
  for (const std::string& part :
       {rate_of(progress), eta_words(progress.seconds_left)}) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

std::string repeated(const char* text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string full_cells(size_t count, const TerminalStyle& style) {
  return repeated(style.is_unicode ? "█" : "#", count);
}

// Returns a bar with its ends: between them are the filled cells, the cells
// `after` them, and `empty` empty cells.
std::string framed(const std::string& filled, Colour colour,
                   const std::string& after, size_t empty,
                   const TerminalStyle& style) {
  return (style.is_unicode ? "|" : "[") + painted(filled, colour, style) +
         after + std::string(empty, style.is_unicode ? ' ' : '.') +
         (style.is_unicode ? "|" : "]");
}

}  // namespace

void Pace::note(int64_t done, double now) {
  if (!first_) first_ = newest_ = {done, now};
  first_->done -= std::max<int64_t>(0, newest_.done - done);
  newest_ = {done, now};
}

double Pace::per_second() const {
  if (!first_ || newest_.done <= first_->done || newest_.at <= first_->at) {
    return 0;
  }
  return static_cast<double>(newest_.done - first_->done) /
         (newest_.at - first_->at);
}

std::optional<double> Pace::seconds_left(int64_t total) const {
  const double rate = per_second();
  if (rate <= 0 || total < newest_.done) return std::nullopt;
  return static_cast<double>(total - newest_.done) / rate;
}

Progress Pace::of(int64_t total) const {
  return {.done = newest_.done,
          .total = total,
          .per_second = per_second(),
          .seconds_left = seconds_left(total)};
}

size_t bar_room(size_t columns, size_t taken) {
  if (columns == 0) return kMostCells;
  const size_t room = columns > taken ? columns - taken : 0;
  return room < kFewestCells ? 0 : std::min(kMostCells, room);
}

std::string bar_cells(double share, size_t cells, const TerminalStyle& style) {
  constexpr std::array<const char*, 8> kParts = {"",  "▏", "▎", "▍",
                                                 "▌", "▋", "▊", "▉"};
  const auto eighths =
      static_cast<size_t>(std::floor(share * 8 * static_cast<double>(cells)));
  const size_t whole = std::min(cells, eighths / 8);
  const bool has_part = style.is_unicode && whole < cells && eighths % 8 > 0;
  return framed(
      full_cells(whole, style) + (has_part ? kParts[eighths % 8] : ""),
      share >= 1 ? Colour::kGreen : Colour::kCyan, "",
      cells - whole - (has_part ? 1 : 0), style);
}

std::string shaded_cells(size_t filled, size_t shaded, size_t cells,
                         Colour colour, const TerminalStyle& style) {
  return framed(full_cells(filled, style), colour,
                repeated(style.is_unicode ? "░" : "-", shaded),
                cells - filled - shaded, style);
}

std::string progress_bar(const Progress& progress, size_t columns,
                         const TerminalStyle& style) {
  const bool is_measured = progress.total > 0;
  std::string head = progress.label;
  if (is_measured) {
    const std::string percent = percent_of(progress);
    head += (head.empty() ? "" : " ") + std::string(3 - percent.size(), ' ') +
            percent + "%";
  }
  std::vector<std::string> parts = parts_of(progress);
  const auto tail = [&parts] { return joined(parts, "  "); };
  if (!is_measured) {
    return cut_line(head + (head.empty() ? "" : " ") + tail(), columns,
                    style.is_unicode);
  }
  constexpr size_t kAround = 4;  // two spaces and the bar's ends
  const auto cells = [&] {
    return bar_room(columns,
                    display_width(head) + kAround + display_width(tail()));
  };
  while (parts.size() > 1 && cells() == 0) {
    parts.erase(parts.begin() + 1);  // drops the rate before the time
  }
  if (cells() == 0) {
    return cut_line(head + "  " + tail(), columns, style.is_unicode);
  }
  return head + " " + bar_cells(share_of(progress), cells(), style) + " " +
         tail();
}

std::string progress_words(const Progress& progress) {
  std::string text = progress.label + (progress.label.empty() ? "" : ": ");
  if (progress.total > 0) {
    text += cat(percent_of(progress), " %, ",
                bare_count_of(progress, progress.done), " of ",
                count_of(progress, progress.total));
  } else {
    text += count_of(progress, progress.done);
  }
  for (const std::string& part :
       {rate_of(progress), eta_words(progress.seconds_left)}) {
    if (!part.empty()) text += ", " + part;
  }
  return text;
}

std::string whole_seconds(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const std::string s = cat(total % 60, "s");
  if (total < 60) return s;
  const std::string ms = cat(total / 60 % 60, "m");
  if (total < 3600) return ms + s;
  return cat(total / 3600, "h", ms);
}

std::string eta_words(std::optional<double> seconds) {
  return seconds && *seconds >= 0.5 ? "ETA " + whole_seconds(*seconds) : "";
}

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
