#include "deploy/notify/run_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/deploy/cli/temporary_folder.h"

namespace headroom::notify {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(RunLines, CellsWithoutAFigureAreLeftOutAndHalfALineIsNone) {
  const testing::TemporaryFolder folder;
  EXPECT_TRUE(read_epochs(folder.path() / "results.csv").empty());
  const auto file =
      folder.write("results.csv", "epoch,a,b,c\n0,1,,2.5\n1,nan,3,4\n2,7");
  const std::vector<ResultsLine> epochs = read_epochs(file);
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_THAT(epochs[0].figures, ElementsAre(Pair("a", 1), Pair("c", 2.5)));
  EXPECT_EQ(epochs[1].text, "1,nan,3,4");
  EXPECT_TRUE(std::isnan(epochs[1].figures[0].second));
}

TEST(RunLines, EventsAreReadOnceAndWhole) {
  const testing::TemporaryFolder folder;
  const std::string first = "{\"event\":\"a\",\"step\":1,\"epoch\":2}\n";
  const auto file = folder.write("events.jsonl", first + "{\"event\":\"b");
  EventReader reader(file, 0);
  const std::vector<EventLine> events = reader.take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, "a");
  EXPECT_EQ(events[0].epoch, 2);
  EXPECT_EQ(events[0].generation, std::nullopt);
  EXPECT_TRUE(reader.take().empty());
  folder.write("events.jsonl", first + "{\"event\":\"b\"}\nnonsense\n");
  ASSERT_EQ(reader.take().size(), 1u);
}

TEST(RunLines, MillisecondsOfAnEventsTime) {
  EXPECT_EQ(milliseconds_of("1970-01-02T00:00:01.250Z"), 86'401'250);
  EXPECT_EQ(milliseconds_of("yesterday"), std::nullopt);
  EXPECT_EQ(milliseconds_of("1970-01-02T00:00:01"), std::nullopt);
}

}  // namespace
}  // namespace headroom::notify
