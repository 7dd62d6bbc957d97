#include "deploy/cli/show/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr TerminalStyle kTerminal = {.rewrites_lines = true,
                                     .is_unicode = true};

coordinator::TimePoint at(int64_t second) {
  return coordinator::TimePoint() + seconds(second);
}

wire::EventRecord event(int64_t sequence, EventKind kind,
                        const std::string& reason) {
  wire::EventRecord record;
  record.sequence = sequence;
  record.event = kind;
  record.reason = reason;
  record.time = "2026-11-21T08:23:0" + std::to_string(sequence % 10) + ".123Z";
  return record;
}

coordinator::RunStatus running(int ranks = 2) {
  coordinator::RunStatus status;
  status.generation = 1;
  status.state = coordinator::RunPhase::kRunning;
  status.reason = "2 of 2 workers joined";
  status.run_directory = "/runs/exp";
  status.memory_limit = 2 * kGiB;
  status.progress = {
      .step = 38,
      .num_steps = 780,
      .epoch = 2,
      .num_epochs = 60,
      .step_in_epoch = 12,
      .steps_per_epoch = 13,
      .losses = {{"box", 0.0812}, {"obj", 0.0331}, {"cls", 0.0208}},
      .images_per_second = 58.34,
      .measured_peak_bytes = 5 * kGiB / 4,
      .predicted_peak_bytes = 3 * kGiB / 2,
      .phase = wire::WorkerPhase::kTrain};
  status.plan.emplace();
  for (int rank = 0; rank < ranks; ++rank) {
    coordinator::MemberStatus member;
    member.rank = rank;
    member.hostname = "a";
    member.state = coordinator::MemberActivity::kRunning;
    member.measured_peak_bytes = kGiB + rank;
    status.members.push_back(member);
    status.plan->predicted_phase_bytes.push_back({.training = 3 * kGiB / 2});
  }
  wire::EventRecord validated =
      event(2, EventKind::kValidation, "epoch 2 validated");
  validated.detail_json = R"({"epoch": 1, "precision": 0.8, "recall": 0.7,)"
                          R"( "map50": 0.75, "map": 0.45})";
  status.events = {event(1, EventKind::kGeneration, "2 of 2 workers joined"),
                   validated};
  return status;
}

TEST(StatusPage, TheEssentials) {
  StatusPage page(kTerminal);
  page.lines(running(), {.columns = 79, .lines = 24}, at(0));
  coordinator::RunStatus later = running();
  later.progress.step = 40;
  EXPECT_THAT(
      page.lines(later, {.columns = 79, .lines = 24}, at(1)),
      ElementsAre(
          "run       /runs/exp",
          "state     running, generation 1: 2 of 2 workers joined",
          "progress    5% |█▎                        | 40/780 steps  58.3 "
          "img/s  ETA 6m10s",
          "epoch     3/60  12/13 steps  train",
          "losses    box 0.081  obj 0.033  cls 0.021",
          "validated mAP50 0.750  mAP 0.450  P 0.800  R 0.700  after epoch 2",
          "memory    measured | predicted | limit",
          "  rank 0   a          |██████████████████░░░       | 1.25 GiB | 1.5 "
          "GiB | 2 GiB",
          "  rank 1   a          |███████████████░░░░░░░░       | 1 GiB | 1.5 "
          "GiB | 2 GiB",
          "events", "  08:23:01  generation  2 of 2 workers joined",
          "  08:23:02  validation  epoch 2 validated"));
}

TEST(StatusPage, TheNewestValidationStaysWhenItsEventIsGone) {
  StatusPage page(kTerminal);
  page.lines(running(), {}, at(0));
  coordinator::RunStatus later = running();
  later.events = {event(9, EventKind::kCheckpoint, "saved")};
  EXPECT_THAT(page.lines(later, {}, at(1)),
              Contains(StartsWith("validated mAP50 0.750")));
}

TEST(StatusPage, FitsIntoTheTerminal) {
  for (const size_t columns : {20, 40, 79, 159}) {
    for (const size_t lines : {6, 12, 24}) {
      StatusPage page(kTerminal);
      const auto shown =
          page.lines(running(300), {.columns = columns, .lines = lines}, at(0));
      EXPECT_LT(shown.size(), lines);
      for (const std::string& line : shown) {
        EXPECT_LE(display_width(line), columns) << line;
      }
    }
  }
}

TEST(StatusPage, OfManyRanksTheFullestAreShown) {
  StatusPage page(kTerminal);
  const auto lines =
      page.lines(running(300), {.columns = 79, .lines = 24}, at(0));
  EXPECT_THAT(lines, Contains(StartsWith("  rank 0 ")));
  EXPECT_THAT(lines, Contains(StartsWith("  rank 299 ")));
  EXPECT_THAT(lines, Not(Contains(StartsWith("  rank 1 "))));
  EXPECT_THAT(lines, Contains(HasSubstr(" ranks that need no more")));
}

TEST(StatusPage, ForeignTextCannotControlATerminal) {
  coordinator::RunStatus status = running();
  status.reason = "\033[2Jgone\nnext";
  status.members[0].hostname = "\033]0;title\007";
  status.events = {event(3, EventKind::kFault, "\033[31mred")};
  for (const bool on_terminal : {true, false}) {
    StatusPage page(kTerminal);
    for (const std::string& line :
         on_terminal ? page.lines(status, {.columns = 200, .lines = 30}, at(0))
                     : page.news(status, at(0))) {
      EXPECT_THAT(line, Not(HasSubstr("\033")));
      EXPECT_THAT(line, Not(HasSubstr("\n")));
    }
  }
}

TEST(StatusPage, WithoutATerminalEachNewsIsPrintedOnce) {
  StatusPage page({});
  EXPECT_THAT(page.news(running(), at(0)),
              ElementsAre("state: running, generation 1: 2 of 2 workers joined",
                          "08:23:01  generation  2 of 2 workers joined",
                          "08:23:02  validation  epoch 2 validated",
                          StartsWith("epoch 3/60  12/13  box 0.081")));
  EXPECT_THAT(page.news(running(), at(1)), IsEmpty());
  coordinator::RunStatus later = running();
  later.progress.step = 39;
  later.events.push_back(event(3, EventKind::kCheckpoint, "saved"));
  EXPECT_THAT(
      page.news(later, at(2)),
      ElementsAre("08:23:03  checkpoint  saved", StartsWith("epoch 3/60")));
  later.state = coordinator::RunPhase::kFinished;
  later.reason = "all 780 steps done";
  EXPECT_THAT(page.news(later, at(3)),
              ElementsAre("state: finished, generation 1: all 780 steps done"));
}

TEST(StatusPage, WithoutATerminalTheFirstEpochIsPrintedByTenths) {
  StatusPage page({});
  coordinator::RunStatus status = running();
  status.progress.steps_per_epoch = 0;
  status.progress.step = 77;
  page.news(status, at(0));
  status.progress.step = 78;
  EXPECT_THAT(page.news(status, at(1)),
              ElementsAre(StartsWith("epoch 3/60  12  box")));
  status.progress.step = 155;
  EXPECT_THAT(page.news(status, at(2)), IsEmpty());
}

TEST(MemoryCells, MeasuredPredictedAndLimit) {
  EXPECT_EQ(memory_cells(4, 6, 8, 8, kTerminal), "|████░░  |");
  EXPECT_EQ(memory_cells(4, 6, 8, 8, {}), "[####--..]");
  EXPECT_EQ(memory_cells(4, 0, 8, 8, {}), "[####....]");
  EXPECT_EQ(memory_cells(0, 0, 0, 4, {}), "[....]");
  EXPECT_EQ(memory_cells(3, 6, 0, 6, {}), "[###---]") << "no limit";
}

TEST(MemoryCells, MoreThanPredictedStandsOut) {
  TerminalStyle style;
  style.has_colours = true;
  EXPECT_EQ(memory_cells(6, 4, 8, 8, style), "[\033[33m######\033[0m..]");
  EXPECT_EQ(memory_cells(4, 4, 8, 8, style), "[\033[32m####\033[0m....]");
}

TEST(Redraw, OverwritesLineByLine) {
  EXPECT_EQ(redraw({"a", "b"}, true),
            "\033[2J\033[Ha\033[K\r\nb\033[K\r\n\033[J");
  EXPECT_EQ(redraw({"a"}, false), "\033[Ha\033[K\r\n\033[J");
}

}  // namespace
}  // namespace headroom::cli
