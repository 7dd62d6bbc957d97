#include "parallel/plan/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "parallel/base/check.h"

namespace headroom::plan {
namespace {

ParallelLayout layout_of(int pipeline, int data, int spatial) {
  ParallelLayout layout;
  layout.pipeline_parallel_size = pipeline;
  layout.data_parallel_size = data;
  layout.spatial_parallel_size = spatial;
  return layout;
}

std::string refusal(const std::string& text) {
  try {
    parse_layout(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    return error.what();
  }
  return "nothing was refused";
}

// The order of the axes is pipeline, data, spatial, with the outermost first.
TEST(Layout, NeighboursShareAnImage) {
  const ParallelLayout layout = layout_of(2, 2, 2);
  const std::vector<MeshCoordinates> expected = {
      {0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1},
      {1, 0, 0}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1}};
  for (int rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(coordinates_of(layout, rank), expected[rank]) << rank;
  }
}

TEST(Layout, RanksAndCoordinatesAreInverse) {
  for (int pipeline = 1; pipeline <= 4; ++pipeline) {
    for (int data = 1; data <= 5; ++data) {
      for (int spatial = 1; spatial <= 3; ++spatial) {
        const ParallelLayout layout = layout_of(pipeline, data, spatial);
        ASSERT_EQ(layout.world_size(), pipeline * data * spatial);
        std::set<std::tuple<int, int, int>> seen;
        for (int rank = 0; rank < layout.world_size(); ++rank) {
          const MeshCoordinates at = coordinates_of(layout, rank);
          EXPECT_EQ(rank_of(layout, at), rank);
          EXPECT_LT(at.pipeline_stage, pipeline);
          EXPECT_LT(at.data_parallel_rank, data);
          EXPECT_LT(at.spatial_rank, spatial);
          seen.insert(
              {at.pipeline_stage, at.data_parallel_rank, at.spatial_rank});
        }
        EXPECT_EQ(static_cast<int>(seen.size()), layout.world_size());
      }
    }
  }
}

TEST(Layout, ARankBeyondTheWorldIsAProgrammersError) {
  EXPECT_THROW(coordinates_of(layout_of(1, 2, 1), 2), CheckFailure);
  EXPECT_THROW(coordinates_of(layout_of(1, 2, 1), -1), CheckFailure);
}

TEST(Layout, Parses) {
  EXPECT_EQ(parse_layout(""), layout_of(1, 1, 1));
  EXPECT_EQ(parse_layout("data=2"), layout_of(1, 2, 1));
  EXPECT_EQ(parse_layout("spatial=3,pipeline=4,data=2"), layout_of(4, 2, 3));
}

TEST(Layout, TextAndLayoutAreInverse) {
  for (int size = 1; size <= 4; ++size) {
    const ParallelLayout layout = layout_of(size, 5 - size, 2 * size);
    EXPECT_EQ(parse_layout(to_string(layout)), layout);
    EXPECT_EQ(parse_layout(short_text(layout)), layout);
  }
}

TEST(Layout, Refusals) {
  const std::string remedy = ": write for example data=2,pipeline=1,spatial=1";
  EXPECT_EQ(refusal("data"),
            "[layout] --layout data: 'data' has no '='" + remedy);
  EXPECT_EQ(refusal("2"), "[layout] --layout 2: '2' has no '='" + remedy);
  EXPECT_EQ(refusal("dta=2"),
            "[layout] --layout dta=2: there is no axis 'dta'; the axes are "
            "data, pipeline, spatial" +
                remedy);
  EXPECT_EQ(refusal("data=2,pipeline=2,data=2"),
            "[layout] --layout data=2,pipeline=2,data=2: the axis data is "
            "named twice" +
                remedy);
  EXPECT_EQ(refusal("data=65536,pipeline=65536,spatial=65536"),
            "[layout] --layout data=65536,pipeline=65536,spatial=65536: more "
            "than 65536 ranks" +
                remedy);
  for (const char* number :
       {"", "0", "-1", "x", "2x", "1.5", "65537", "99999999999999999999"}) {
    EXPECT_EQ(refusal("data=" + std::string(number)),
              "[layout] --layout data=" + std::string(number) + ": '" + number +
                  "' is not a number of ranks of at least 1" + remedy);
  }
}

}  // namespace
}  // namespace headroom::plan
