#include "configs/worker_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace headroom::configs {
namespace {

using ::testing::ElementsAre;

TEST(WorkerFlags, RequiredFlagsAreWrittenAndDefaultsAreNot) {
  EXPECT_THAT(
      words_of(WorkerStart{.coordinator = "127.0.0.1:4",
                           .node_id = "n",
                           .worker_id = "n-0",
                           .advertise_host = "127.0.0.1"}),
      ElementsAre("--coordinator", "127.0.0.1:4", "--node-id", "n",
                  "--worker-id", "n-0", "--advertise-host", "127.0.0.1"));
  EXPECT_THAT(words_of(DatasetQuery{.data = "my.yaml"}),
              ElementsAre("answer", "my.yaml"));
}

TEST(WorkerFlags, ValuesThatDifferFromTheDefaultAreWritten) {
  const DatasetQuery query{.data = "my.yaml",
                           .single_cls = true,
                           .threads = 3,
                           .anchors = {.model = "yolov5n",
                                       .image_width = 320,
                                       .threshold = 2.5,
                                       .seed = 18'446'744'073'709'551'615U}};
  EXPECT_THAT(
      words_of(query),
      ElementsAre("answer", "my.yaml", "--single-cls", "--threads", "3",
                  "--anchors-for", "yolov5n", "--width", "320", "--anchor-t",
                  "2.5", "--seed", "18446744073709551615"));
}

TEST(WorkerFlags, AreBoundToTheFieldsOfTheirRequest) {
  StandaloneRequest request;
  for (const WorkerFlag& flag : flags_of(request)) {
    if (auto* const* path = std::get_if<std::filesystem::path*>(&flag.value)) {
      **path = flag.value_name;
    } else {
      *std::get<bool*>(flag.value) = true;
    }
  }
  EXPECT_EQ(request.run_yaml, "RUN.YAML");
  EXPECT_EQ(request.plan_json, "PLAN.JSON");
  EXPECT_EQ(request.run_directory, "DIR");
  EXPECT_TRUE(request.resume);
}

template <typename Request>
void expect_apart_and_explained() {
  Request request;
  std::set<std::string> spellings;
  for (const WorkerFlag& flag : flags_of(request)) {
    EXPECT_TRUE(spellings.insert(flag.spelling).second) << flag.spelling;
    EXPECT_FALSE(flag.description.empty()) << flag.spelling;
    EXPECT_EQ(flag.value_name.empty(),
              std::holds_alternative<bool*>(flag.value))
        << flag.spelling;
  }
}

TEST(WorkerFlags, AreApartAndExplained) {
  expect_apart_and_explained<WorkerStart>();
  expect_apart_and_explained<DatasetQuery>();
  expect_apart_and_explained<StandaloneRequest>();
}

}  // namespace
}  // namespace headroom::configs
