#include "parallel/pipeline/skip_routes.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "parallel/base/check.h"
#include "tests/parallel/pipeline/random_pipeline.h"

namespace headroom::pipeline {
namespace {

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

TEST(SkipRoutes, EveryStageThatReadsTheImagesIsListed) {
  const std::vector<StageRoutes> routes =
      skip_routes({{-1}, {0}, {1, -1}}, {0, 1, 2});
  EXPECT_TRUE(routes[0].reads_images);
  EXPECT_FALSE(routes[1].reads_images);
  EXPECT_TRUE(routes[2].reads_images);
}

TEST(SkipRoutes, StageOfALayer) {
  const std::vector<int64_t> stage_begins = {0, 3, 5};
  EXPECT_EQ(stage_of_layer(stage_begins, 0), 0);
  EXPECT_EQ(stage_of_layer(stage_begins, 2), 0);
  EXPECT_EQ(stage_of_layer(stage_begins, 3), 1);
  EXPECT_EQ(stage_of_layer(stage_begins, 9), 2);
  EXPECT_THROW(stage_of_layer(stage_begins, -1), CheckFailure);
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
    using Crossing = std::tuple<int, int, int>;  // layer, sender, receiver
    std::set<Crossing> wanted;
    for (size_t layer = 0; layer < pipeline.inputs.size(); ++layer)
      for (const int input : pipeline.inputs[layer]) {
        if (input < 0) continue;
        const int from = stage_of_layer(pipeline.stage_begins, input);
        const int to =
            stage_of_layer(pipeline.stage_begins, static_cast<int>(layer));
        if (from != to) wanted.insert({input, from, to});
      }
    std::multiset<Crossing> sent, received;
    const auto routes = skip_routes(pipeline.inputs, pipeline.stage_begins);
    for (int stage = 0; stage < pipeline.num_stages(); ++stage) {
      for (const SentMap& map : routes[static_cast<size_t>(stage)].sent)
        for (const int to : map.to) sent.insert({map.layer, stage, to});
      for (const ReceivedMap& map : routes[static_cast<size_t>(stage)].received)
        received.insert({map.layer, map.from, stage});
    }
    const std::multiset<Crossing> once(wanted.begin(), wanted.end());
    EXPECT_EQ(sent, once) << "seed " << seed;
    EXPECT_EQ(received, once) << "seed " << seed;
    num_crossings += static_cast<int>(wanted.size());
  }
  EXPECT_GT(num_crossings, 900);
}

}  // namespace
}  // namespace headroom::pipeline
