#include "deploy/cli/show/status_page.h"

#include <algorithm>
#include <cmath>

#include "deploy/cli/show/status_table.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

constexpr size_t kNewestEvents = 5;
constexpr size_t kLongestText = 4096;
// Used if the height of the terminal is unknown.
constexpr size_t kUsualLines = 64;

std::string headed(const std::string& name, const std::string& text) {
  return padded(name, 10) + text;
}

Colour colour_of(coordinator::RunPhase state) {
  switch (state) {
    case coordinator::RunPhase::kFailed:
      return Colour::kRed;
    case coordinator::RunPhase::kRunning:
    case coordinator::RunPhase::kFinished:
      return Colour::kGreen;
    case coordinator::RunPhase::kWaiting:
    case coordinator::RunPhase::kRegrouping:
    case coordinator::RunPhase::kStopping:
      break;
  }
  return Colour::kYellow;
}

std::string state_text(const coordinator::RunStatus& status) {
  return cat(to_string(status.state), ", generation ", status.generation,
             status.reason.empty() ? "" : ": " + status.reason);
}

struct RankLine {
  int rank = 0;
  std::string host;
  int64_t measured = 0, predicted = 0;
};

std::vector<RankLine> ranks_of(const coordinator::RunStatus& status) {
  std::vector<RankLine> ranks;
  for (const coordinator::MemberStatus& member : status.members) {
    if (member.rank < 0) continue;
    const bool is_first = member.rank == 0;
    ranks.push_back({member.rank, member.hostname,
                     is_first ? std::max(member.measured_peak_bytes,
                                         status.progress.measured_peak_bytes)
                              : member.measured_peak_bytes,
                     predicted_bytes(status, member.rank)});
  }
  return ranks;
}

// Keeps the `most` ranks that use most memory, in rank order. Returns the
// number of ranks left out.
size_t keep_fullest(std::vector<RankLine>& ranks, size_t most) {
  if (ranks.size() <= most) return 0;
  std::ranges::stable_sort(ranks, std::ranges::greater(), &RankLine::measured);
  const size_t left_out = ranks.size() - most;
  ranks.resize(most);
  std::ranges::stable_sort(ranks, {}, &RankLine::rank);
  return left_out;
}

std::string rank_text(const RankLine& rank, int64_t limit, size_t columns,
                      const TerminalStyle& style) {
  const std::string head = "  " + padded(cat("rank ", rank.rank), 8) + " " +
                           padded(short_line(rank.host, 24), 10) + " ";
  const std::string tail = " " + size_or_dash(rank.measured) + " | " +
                           size_or_dash(rank.predicted) + " | " +
                           size_or_dash(limit);
  const size_t cells =
      bar_room(columns, display_width(head) + display_width(tail) + 2);
  if (cells == 0) return cut_line(head + tail, columns, style.is_unicode);
  return head +
         memory_cells(rank.measured, rank.predicted, limit, cells, style) +
         tail;
}

// "08:23:00  generation  2 of 2 workers joined".
std::string event_text(const wire::EventRecord& event) {
  const std::string time =
      event.time.size() >= 19 ? event.time.substr(11, 8) : event.time;
  return short_line(time + "  " + padded(to_string(event.event), 11) + " " +
                        event_line(event),
                    kLongestText);
}

// The number of finished tenths of epochs. If the length of an epoch is unknown
// (in a validation, or in a folder's first epoch), the number of finished
// tenths of all steps or images.
int64_t tenths_of(const wire::RunProgress& progress) {
  return Progress{.done = progress.step,
                  .total = progress.steps_per_epoch > 0
                               ? progress.steps_per_epoch
                               : progress.num_steps}
      .tenths();
}

}  // namespace

std::string memory_cells(int64_t measured, int64_t predicted, int64_t limit,
                         size_t cells, const TerminalStyle& style) {
  const int64_t whole = std::max({limit, measured, predicted, int64_t{1}});
  const auto cells_of = [&](int64_t bytes) {
    const double share =
        static_cast<double>(bytes) / static_cast<double>(whole);
    return static_cast<size_t>(
        std::llround(share * static_cast<double>(cells)));
  };
  const size_t filled = cells_of(measured);
  const size_t shaded = std::max(filled, cells_of(predicted)) - filled;
  const bool is_above = predicted > 0 && measured > predicted;
  return shaded_cells(filled, shaded, cells,
                      is_above ? Colour::kYellow : Colour::kGreen, style);
}

std::string redraw(const std::vector<std::string>& lines, bool is_first) {
  std::string text = is_first ? "\033[2J\033[H" : "\033[H";
  for (const std::string& line : lines) text += line + "\033[K\r\n";
  return text + "\033[J";
}

void StatusPage::note(const coordinator::RunStatus& status,
                      coordinator::TimePoint now) {
  eta_seconds_ = remaining_seconds(status.progress, now, pace_);
  for (const wire::EventRecord& event : status.events) {
    if (event.event != EventKind::kValidation) continue;
    if (const auto epoch = validated_epoch(event)) validated_ = epoch;
  }
}

std::vector<std::string> StatusPage::lines(const coordinator::RunStatus& status,
                                           TerminalSize size,
                                           coordinator::TimePoint now) {
  note(status, now);
  const wire::RunProgress& progress = status.progress;
  std::vector<std::string> lines;
  const auto add = [&](const std::string& text,
                       std::optional<Colour> colour = {}) {
    const std::string line = cut_line(short_line(text, kLongestText),
                                      size.columns, style_.is_unicode);
    lines.push_back(colour ? painted(line, *colour, style_) : line);
  };
  add(headed("run", folder_text(status)));
  add(headed("state", state_text(status)), colour_of(status.state));
  for (const coordinator::LeftOutCard& card : status.left_out_cards) {
    add(headed("left out", coordinator::to_string(card)), Colour::kYellow);
  }
  constexpr size_t kHead = 10;
  const size_t room =
      size.columns > kHead ? size.columns - kHead : size.columns;
  lines.push_back(headed(
      "progress",
      progress_bar(progress_of_run(status, eta_seconds_), room, style_)));
  if (progress.num_epochs > 0) {
    const std::string phase = wire::to_string(progress.phase);
    add(headed("epoch", cat(progress.epoch + 1, "/", progress.num_epochs, "  ",
                            progress.step_in_epoch,
                            progress.steps_per_epoch > 0
                                ? cat("/", progress.steps_per_epoch)
                                : std::string(),
                            " steps", phase.empty() ? "" : "  " + phase)));
    add(headed("losses", losses_text(progress.losses, "  ")));
  }
  if (validated_) {
    add(headed("validated", cat("mAP50 ", fixed_text(validated_->map50, 3),
                                "  mAP ", fixed_text(validated_->map, 3),
                                "  P ", fixed_text(validated_->precision, 3),
                                "  R ", fixed_text(validated_->recall, 3),
                                "  after epoch ", validated_->epoch + 1)));
  }
  const size_t num_events = std::min(kNewestEvents, status.events.size());
  const size_t all = size.lines > 0 ? size.lines : kUsualLines;
  // The 4 lines are two headings, the line about omitted ranks, and the
  // cursor's line.
  const size_t others = lines.size() + num_events + 4;
  std::vector<RankLine> ranks = ranks_of(status);
  const size_t left_out = keep_fullest(ranks, all > others ? all - others : 1);
  if (!ranks.empty()) {
    add("memory    measured | predicted | limit", Colour::kBold);
  }
  for (const RankLine& rank : ranks) {
    lines.push_back(rank_text(rank, status.memory_limit, size.columns, style_));
  }
  if (left_out > 0) {
    add("  and " + counted(static_cast<int64_t>(left_out), "rank") +
        " that need no more");
  }
  if (num_events > 0) add("events", Colour::kBold);
  for (size_t i = status.events.size() - num_events; i < status.events.size();
       ++i) {
    const wire::EventRecord& event = status.events[i];
    add("  " + event_text(event),
        event.warning ? std::optional(Colour::kYellow) : std::nullopt);
  }
  if (lines.size() >= all) lines.resize(std::max<size_t>(1, all - 1));
  return lines;
}

std::vector<std::string> StatusPage::news(const coordinator::RunStatus& status,
                                          coordinator::TimePoint now) {
  note(status, now);
  std::vector<std::string> lines;
  const std::string state = state_text(status);
  if (state != told_state_) {
    lines.push_back(short_line("state: " + state, kLongestText));
  }
  told_state_ = state;
  const bool is_first = told_sequence_ == 0;
  const size_t begin = is_first && status.events.size() > kNewestEvents
                           ? status.events.size() - kNewestEvents
                           : 0;
  for (size_t i = begin; i < status.events.size(); ++i) {
    const wire::EventRecord& event = status.events[i];
    if (event.sequence <= told_sequence_) continue;
    told_sequence_ = event.sequence;
    lines.push_back(event_text(event));
  }
  const int64_t tenths = tenths_of(status.progress);
  if (status.progress.step > 0 && tenths != told_tenths_) {
    told_tenths_ = tenths;
    lines.push_back(progress_line(status, eta_seconds_));
  }
  return lines;
}

}  // namespace headroom::cli
