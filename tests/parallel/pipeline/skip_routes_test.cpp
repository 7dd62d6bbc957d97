#include "parallel/pipeline/skip_routes.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "parallel/base/check.h"
#include "tests/parallel/pipeline/random_pipeline.h"

namespace headroom {
namespace {

using Kind = Instruction::Kind;

TEST(SkipRoutes, TheExampleOfTheHeader) {
  const std::vector<StageRoutes> routes =
      skip_routes({{-1}, {0}, {1}, {2}, {3}, {4, 2}}, {0, 3, 5});
  ASSERT_EQ(routes.size(), 3u);
  EXPECT_EQ(routes[0], (StageRoutes{{}, {{2, {1, 2}}}, true}));
  EXPECT_EQ(routes[1], (StageRoutes{{{2, 0}}, {{4, {2}}}, false}));
  EXPECT_EQ(routes[2], (StageRoutes{{{2, 0}, {4, 1}}, {}, false}));
}

TEST(SkipRoutes, AMapReadTwiceInAStageTravelsOnce) {
  const std::vector<StageRoutes> routes =
      skip_routes({{-1}, {0}, {0}, {1, 2, 0}}, {0, 1});
  EXPECT_EQ(routes[0].sent, (std::vector<SentMap>{{0, {1}}}));
  EXPECT_EQ(routes[1].received, (std::vector<ReceivedMap>{{0, 0}}));
}

TEST(SkipRoutes, OneStageHasNone) {
  EXPECT_EQ(skip_routes({{-1}, {0}, {1, 0}}, {0}),
            (std::vector<StageRoutes>{{{}, {}, true}}));
}

TEST(SkipRoutes, EveryStageThatReadsTheImagesSaysSo) {
  const std::vector<StageRoutes> routes =
      skip_routes({{-1}, {0}, {1, -1}}, {0, 1, 2});
  EXPECT_TRUE(routes[0].reads_images);
  EXPECT_FALSE(routes[1].reads_images);
  EXPECT_TRUE(routes[2].reads_images);
}

TEST(SkipRoutes, StageOfARow) {
  const std::vector<int> first_rows = {0, 3, 5};
  EXPECT_EQ(stage_of_row(first_rows, 0), 0);
  EXPECT_EQ(stage_of_row(first_rows, 2), 0);
  EXPECT_EQ(stage_of_row(first_rows, 3), 1);
  EXPECT_EQ(stage_of_row(first_rows, 9), 2);
  EXPECT_THROW(stage_of_row(first_rows, -1), CheckFailure);
}

TEST(SkipRoutes, WrongCutsAndEdgesAreProgrammersErrors) {
  EXPECT_THROW(skip_routes({{-1}, {0}}, {0, 2}), CheckFailure);
  EXPECT_THROW(skip_routes({{-1}, {0}}, {1}), CheckFailure);
  EXPECT_THROW(skip_routes({{-1}, {0}}, {}), CheckFailure);
  EXPECT_THROW(skip_routes({{-1}, {0}, {1}}, {0, 1, 1}), CheckFailure);
  EXPECT_THROW(skip_routes({{-1}, {1}}, {0}), CheckFailure);
}

constexpr uint32_t kNumRandom = 200;

TEST(SkipRoutes, RandomRoutesCoverEveryCrossingEdgeOnce) {
  int num_crossings = 0;
  for (uint32_t seed = 0; seed < kNumRandom; ++seed) {
    const RandomPipeline pipeline = random_pipeline(seed);
    using Crossing = std::tuple<int, int, int>;  // row, from, to
    std::set<Crossing> wanted;
    for (size_t row = 0; row < pipeline.inputs.size(); ++row)
      for (const int input : pipeline.inputs[row]) {
        if (input < 0) continue;
        const int from = stage_of_row(pipeline.first_rows, input);
        const int to = stage_of_row(pipeline.first_rows, static_cast<int>(row));
        if (from != to) wanted.insert({input, from, to});
      }
    std::multiset<Crossing> sent, received;
    const auto routes = skip_routes(pipeline.inputs, pipeline.first_rows);
    for (int stage = 0; stage < pipeline.num_stages(); ++stage) {
      for (const SentMap& map : routes[static_cast<size_t>(stage)].sent)
        for (const int to : map.to) sent.insert({map.row, stage, to});
      for (const ReceivedMap& map : routes[static_cast<size_t>(stage)].received)
        received.insert({map.row, map.from, stage});
    }
    const std::multiset<Crossing> once(wanted.begin(), wanted.end());
    EXPECT_EQ(sent, once) << "seed " << seed;
    EXPECT_EQ(received, once) << "seed " << seed;
    num_crossings += static_cast<int>(wanted.size());
  }
  EXPECT_GT(num_crossings, 900);
}

// Stages run their lists with sends that never block and receives that do. All
// must come to their ends, every message must be taken by the receive that
// means it, and none may be left.
TEST(SkipRoutes, RandomSchedulesRunWithoutDeadlock) {
  using Message = std::tuple<Kind, int64_t, int>;  // way, micro-batch, row
  for (uint32_t seed = 0; seed < kNumRandom; ++seed) {
    const RandomPipeline pipeline = random_pipeline(seed);
    const auto routes = skip_routes(pipeline.inputs, pipeline.first_rows);
    const int num_stages = pipeline.num_stages();
    std::map<std::pair<int, int>, std::vector<Message>> channels;
    std::vector<std::vector<Instruction>> lists;
    for (int stage = 0; stage < num_stages; ++stage)
      lists.push_back(schedule(pipeline.kind, num_stages,
                               pipeline.num_micro_batches, stage));
    std::vector<size_t> next(lists.size(), 0);

    const auto step = [&](int stage) {
      const auto index = static_cast<size_t>(stage);
      if (next[index] == lists[index].size()) return false;
      const Instruction instruction = lists[index][next[index]];
      const StageRoutes& mine = routes[index];
      std::vector<std::pair<int, int>> takes, gives;  // (peer, row)
      const bool forward = instruction.kind == Kind::kForward;
      auto& received = forward ? takes : gives;
      auto& sent = forward ? gives : takes;
      for (const ReceivedMap& map : mine.received)
        received.emplace_back(map.from, map.row);
      for (const SentMap& map : mine.sent)
        for (const int to : map.to) sent.emplace_back(to, map.row);
      std::map<int, size_t> taken;
      for (const auto& [peer, row] : takes) {
        const auto& channel = channels[{peer, stage}];
        const size_t position = taken[peer]++;
        if (position >= channel.size()) return false;  // blocks
        EXPECT_EQ(channel[position],
                  Message(instruction.kind, instruction.micro_batch, row))
            << "seed " << seed;
      }
      for (const auto& [peer, count] : taken) {
        auto& channel = channels[{peer, stage}];
        channel.erase(channel.begin(),
                      channel.begin() + static_cast<int64_t>(count));
      }
      for (const auto& [peer, row] : gives)
        channels[{stage, peer}].push_back(
            {instruction.kind, instruction.micro_batch, row});
      ++next[index];
      return true;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < num_stages; ++stage)
        while (step(stage)) moved = true;
    }
    for (size_t stage = 0; stage < lists.size(); ++stage)
      EXPECT_EQ(next[stage], lists[stage].size())
          << "seed " << seed << ": stage " << stage << " is stuck";
    for (const auto& [pair, channel] : channels)
      EXPECT_TRUE(channel.empty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace headroom
