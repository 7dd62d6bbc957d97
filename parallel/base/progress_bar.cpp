#include "parallel/base/progress_bar.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom {
namespace {

constexpr size_t kMostCells = 30;
constexpr size_t kFewestCells = 8;

double share_of(const BarProgress& progress) {
  if (progress.total <= 0) return 0;
  return std::clamp(
      static_cast<double>(progress.done) / static_cast<double>(progress.total),
      0.0, 1.0);
}

// Rounded down, so that 100 appears only when all is done.
std::string percent_of(const BarProgress& progress) {
  return std::to_string(
      static_cast<int64_t>(std::floor(100 * share_of(progress))));
}

std::string rate_of(const BarProgress& progress) {
  return progress.per_second > 0
             ? fixed_text(progress.per_second, 1) + progress.rate_unit + "/s"
             : "";
}

// The parts after the bar: the count, then rate and remaining time if known.
std::vector<std::string> parts_of(const BarProgress& progress) {
  std::vector<std::string> parts;
  const std::string done = std::to_string(progress.done);
  if (progress.total <= 0) {
    parts.push_back(
        progress.noun.empty() ? done : counted(progress.done, progress.noun));
  } else if (progress.noun.empty()) {
    parts.push_back(cat(done, "/", progress.total));
  } else {
    parts.push_back(done + "/" + counted(progress.total, progress.noun));
  }
  for (const std::string& part :
       {rate_of(progress), eta_words(progress.seconds_left)}) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

}  // namespace

BarProgress mean_progress(const std::string& label, int64_t done, int64_t total,
                          double seconds) {
  BarProgress progress{.label = label, .done = done, .total = total};
  if (done <= 0 || seconds <= 0) return progress;
  progress.per_second = static_cast<double>(done) / seconds;
  if (total > done) {
    progress.seconds_left =
        static_cast<double>(total - done) / progress.per_second;
  }
  return progress;
}

std::string bar_cells(double share, size_t cells, const TerminalStyle& style) {
  constexpr std::array<const char*, 8> kParts = {"",  "▏", "▎", "▍",
                                                 "▌", "▋", "▊", "▉"};
  const auto eighths =
      static_cast<size_t>(std::floor(share * 8 * static_cast<double>(cells)));
  const size_t whole = std::min(cells, eighths / 8);
  std::string filled;
  for (size_t i = 0; i < whole; ++i) filled += style.is_unicode ? "█" : "#";
  size_t taken = whole;
  if (style.is_unicode && whole < cells && eighths % 8 > 0) {
    filled += kParts[eighths % 8];
    ++taken;
  }
  const std::string rest(cells - taken, style.is_unicode ? ' ' : '.');
  return (style.is_unicode ? "|" : "[") +
         painted(filled, share >= 1 ? Colour::kGreen : Colour::kCyan, style) +
         rest + (style.is_unicode ? "|" : "]");
}

std::string progress_bar(const BarProgress& progress, size_t columns,
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
  const auto room = [&]() -> size_t {
    const size_t taken = display_width(head) + kAround + display_width(tail());
    return columns == 0 ? kMostCells : columns > taken ? columns - taken : 0;
  };
  while (parts.size() > 1 && room() < kFewestCells) {
    parts.erase(parts.begin() + 1);  // the time matters more than the rate
  }
  const size_t cells = std::min(kMostCells, room());
  if (cells < kFewestCells) {
    return cut_line(head + "  " + tail(), columns, style.is_unicode);
  }
  return head + " " + bar_cells(share_of(progress), cells, style) + " " +
         tail();
}

std::string progress_words(const BarProgress& progress) {
  std::string text = progress.label + (progress.label.empty() ? "" : ": ");
  if (progress.total > 0) {
    text += cat(percent_of(progress), " %, ", progress.done, " of ",
                counted(progress.total, progress.noun));
  } else {
    text += counted(progress.done, progress.noun);
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

}  // namespace headroom
