#include "worker/memory/memory_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::memory {
namespace {

using Json = nlohmann::json;
using Kind = activations::MemoryTimeline::Kind;

int32_t index_of(MemoryCategory category) {
  return static_cast<int32_t>(category);
}
int32_t index_of(StepPhase phase) { return static_cast<int32_t>(phase); }

constexpr int64_t kOrigin = 1'000'000'000'000;  // nanoseconds

// One step: 100 bytes of weights, 40 of activations that are freed.
MemoryRecord step_record(int64_t begin) {
  using enum MemoryCategory;
  using enum StepPhase;
  return {{{begin, 100, Kind::kLive, index_of(kParameters)},
           {begin + 1000, 0, Kind::kPhase, index_of(kForward)},
           {begin + 1500, 40, Kind::kLive, index_of(kActivations)},
           {begin + 2000, 0, Kind::kPhase, index_of(kBackward)},
           {begin + 2100, 0, Kind::kLive, index_of(kActivations)},
           {begin + 3000, 0, Kind::kPhase, index_of(kCommit)},
           {begin + 3000, 5000, Kind::kUncounted, 0},
           {begin + 4000, 0, Kind::kPhase, index_of(kNone)}},
          false};
}

std::vector<Json> events_of(const Json& trace, const std::string& phase,
                            int rank) {
  std::vector<Json> found;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase && event.at("pid") == rank)
      found.push_back(event);
  }
  return found;
}

TEST(MemoryTracer, ReplacesNothingButAnEarlierTrace) {
  const testing::TemporaryFolder folder;
  auto& memory = activations::CountingAllocator::instance();
  const auto begin = [&](const std::filesystem::path& file) {
    const MemoryTracer tracer(file, 1, 0, memory);
  };
  const auto text = folder.write("notes.json", "{}");
  EXPECT_THROW(begin(text), Error);
  EXPECT_EQ(folder.read("notes.json"), "{}");
  folder.write("mine.png", "a picture");
  EXPECT_THROW(begin(folder.path() / "mine.json"), Error);
  EXPECT_EQ(folder.read("mine.png"), "a picture");
  begin(folder.write("trace.json", to_chrome_trace({step_record(kOrigin)})));
}

TEST(MemoryTracer, ALinkIsRefusedAndItsTargetKept) {
  const testing::TemporaryFolder folder;
  auto& memory = activations::CountingAllocator::instance();
  const std::string earlier = to_chrome_trace({step_record(kOrigin)});
  folder.write("other.json", earlier);
  for (const char* link : {"trace.json", "trace.png"}) {
    const auto file = folder.path() / link;
    std::filesystem::create_symlink("other.json", file);
    EXPECT_EQ(testing::refusal_of([&] {
                const MemoryTracer tracer(folder.path() / "trace.json", 1, 0,
                                          memory);
              }),
              "[memory_trace] " + file.string() +
                  " cannot be replaced (it is a symbolic link, which is not "
                  "followed here): move it away, or name another file: "
                  "--memory-trace FILE");
    EXPECT_EQ(folder.read("other.json"), earlier);
    std::filesystem::remove(file);
  }
}

TEST(MemoryTrace, HasSlicesPerPhaseAndCountersPerCategory) {
  const Json trace = Json::parse(
      to_chrome_trace({step_record(kOrigin + 500), step_record(kOrigin)}));
  for (const int rank : {0, 1}) {
    const double begin = rank == 0 ? 0.5 : 0;  // µs after the first event
    const auto slices = events_of(trace, "X", rank);
    ASSERT_EQ(slices.size(), 3u);
    EXPECT_EQ(slices[0].at("name"), "forward");
    EXPECT_DOUBLE_EQ(slices[0].at("ts"), begin + 1);
    EXPECT_DOUBLE_EQ(slices[0].at("dur"), 1);
    EXPECT_EQ(slices[1].at("name"), "backward");
    EXPECT_EQ(slices[2].at("name"), "commit");
    EXPECT_DOUBLE_EQ(slices[2].at("ts"), begin + 3);

    std::map<std::string, std::vector<int64_t>> counters;
    for (const Json& event : events_of(trace, "C", rank)) {
      counters[event.at("name")].push_back(event.at("args").at("bytes"));
    }
    EXPECT_EQ(counters.at("parameters"), std::vector<int64_t>{100});
    EXPECT_EQ(counters.at("activations"), (std::vector<int64_t>{40, 0}));
    EXPECT_EQ(counters.at("all tensors"),
              (std::vector<int64_t>{100, 140, 100}));
    EXPECT_EQ(counters.at("resident beyond the peak"),
              std::vector<int64_t>{5000});
    const auto names = events_of(trace, "M", rank);
    ASSERT_EQ(names.size(), 1u);
    EXPECT_EQ(names[0].at("args").at("name"), "rank " + std::to_string(rank));
  }
}

TEST(MemoryTrace, ARecordThatEndsEarlyIsClosedWithANotice) {
  MemoryRecord record = step_record(kOrigin);
  record.events.resize(3);  // the trace ends in forward
  record.is_full = true;
  const Json trace = Json::parse(to_chrome_trace({record}));
  const auto slices = events_of(trace, "X", 0);
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_DOUBLE_EQ(slices[0].at("dur"), 0.5);
  EXPECT_EQ(events_of(trace, "i", 0).size(), 1u);
  EXPECT_TRUE(Json::parse(to_chrome_trace({MemoryRecord()})).is_object());
}

TEST(MemoryTrace, TheChartHasAPanelPerRank) {
  const chart::AreaChart chart =
      to_chart({step_record(kOrigin), step_record(kOrigin)});
  ASSERT_EQ(chart.panels.size(), 2u);
  EXPECT_EQ(chart.part_names.size(), kNumMemoryCategories);
  const auto& samples = chart.panels[0].samples;
  ASSERT_EQ(samples.size(), 3u);
  const auto part = static_cast<size_t>(MemoryCategory::kActivations);
  EXPECT_EQ(samples[1].parts[part], 40.0 / (1 << 20));
  EXPECT_EQ(samples[2].parts[part], 0);
  EXPECT_EQ(chart.panels[0].marks.size(), 4u);
  EXPECT_EQ(chart.panels[0].marks.back().name, "");
}

TEST(MemoryTrace, UncountedMemoryIsTheLargestOfTheSamples) {
  MemoryRecord record = step_record(kOrigin);
  EXPECT_EQ(most_uncounted_bytes(record), 5000);
  record.events.push_back({kOrigin, 7000, Kind::kUncounted, 0});
  EXPECT_EQ(most_uncounted_bytes(record), 7000);
  EXPECT_EQ(most_uncounted_bytes({}), 0);
}

}  // namespace
}  // namespace headroom::memory
