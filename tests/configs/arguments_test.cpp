#include "configs/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "configs/worker_start.h"
#include "parallel/base/check.h"
#include "tests/support/refusal.h"

namespace headroom::configs {
namespace {

using ::testing::ElementsAre;

TEST(Arguments, RequiredFlagsAreWrittenAndDefaultsAreNot) {
  WorkerStart start{.coordinator = "127.0.0.1:4",
                    .node_id = "n",
                    .worker_id = "n-0",
                    .advertise_host = "127.0.0.1"};
  EXPECT_THAT(
      words_of(start),
      ElementsAre("--coordinator", "127.0.0.1:4", "--node-id", "n",
                  "--worker-id", "n-0", "--advertise-host", "127.0.0.1"));
  start.threads = 3;
  start.insecure_network = true;
  start.card_uuid = "GPU-1";
  EXPECT_THAT(words_of(start),
              ElementsAre("--coordinator", "127.0.0.1:4", "--node-id", "n",
                          "--worker-id", "n-0", "--advertise-host", "127.0.0.1",
                          "--threads", "3", "--insecure-network", "--card-uuid",
                          "GPU-1"));
}

TEST(Arguments, ArgumentsSetTheFieldsThatTheyWereMadeFrom) {
  const WorkerStart start{.coordinator = "127.0.0.1:4",
                          .node_id = "n",
                          .worker_id = "n-0",
                          .advertise_host = "127.0.0.1",
                          .threads = 3,
                          .insecure_network = true,
                          .card = 7};
  WorkerStart read;
  read_arguments(options_of(read), words_of(start), "help");
  EXPECT_EQ(words_of(read), words_of(start));
  EXPECT_EQ(read.card, 7);
}

StandaloneRequest standalone(const std::vector<std::string>& words) {
  StandaloneRequest request;
  read_arguments(options_of(request), words, "program --help");
  return request;
}

TEST(Arguments, PositionalArgumentsAndFlagsMayBeInAnyOrder) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"a.yaml", "--plan=b", "--resume"},
        {"--plan", "b", "a.yaml", "--resume"},
        {"--resume", "a.yaml", "--plan", "b"}}) {
    const StandaloneRequest request = standalone(words);
    EXPECT_EQ(request.run_yaml, "a.yaml");
    EXPECT_EQ(request.plan_json, "b");
    EXPECT_EQ(request.run_directory, "");
    EXPECT_TRUE(request.resume);
  }
}

TEST(Arguments, FaultsAreRefusedInOneLine) {
  const auto refusal = [](const std::vector<std::string>& words) {
    return testing::refusal_of([&] { standalone(words); });
  };
  EXPECT_EQ(refusal({}),
            "[command line] RUN.YAML is required: program --help shows how to "
            "write it");
  EXPECT_EQ(refusal({"a.yaml", "b.yaml"}),
            "[command line] 'b.yaml' belongs to no flag: program --help shows "
            "what may stand where");
  EXPECT_EQ(refusal({"a.yaml", "--pland", "b"}),
            "[command line] unknown flag --pland: program --help shows what "
            "may stand where");
  EXPECT_EQ(refusal({"a.yaml", "--plan"}),
            "[command line] --plan must be followed by PLAN.JSON: program "
            "--help shows how to write it");
  EXPECT_EQ(refusal({"a.yaml", "--plan", "a", "--plan=b"}),
            "[command line] --plan a and --plan=b: the flag is given twice: "
            "give it once");
  EXPECT_EQ(refusal({"a.yaml", "--resume=no"}),
            "[command line] --resume is a switch and takes no value: leave it "
            "out to have it off");
  WorkerStart start;
  EXPECT_EQ(testing::refusal_of([&] {
              read_arguments(options_of(start), {"--threads", "two"}, "help");
            }),
            "[command line] --threads two: 'two' is not a whole number: write "
            "--threads N");
}

TEST(Arguments, AListTakesSeveralValuesAndOtherFlagsTakeOne) {
  const Option pair =
      option("--size HEIGHT [WIDTH]", {}, "", {.most_values = 2});
  const std::vector<std::string> words = {"--size", "4", "5", "--all"};
  size_t at = 0;
  const OptionUse use = take_use(pair, words, at, "help");
  EXPECT_THAT(use.values, ElementsAre("4", "5"));
  EXPECT_EQ(use.text, "--size 4 5");
  EXPECT_EQ(at, 3u);
  at = 0;
  EXPECT_THAT(take_use(option("--size N", {}, ""), words, at, "help").values,
              ElementsAre("4"));
  EXPECT_EQ(at, 2u);
}

template <typename Request>
void expect_apart_and_explained() {
  Request request;
  std::set<std::string> forms;
  for (const Option& option : options_of(request)) {
    EXPECT_TRUE(forms.insert(form_of(option)).second) << form_of(option);
    EXPECT_FALSE(option.advice.empty()) << form_of(option);
    EXPECT_EQ(is_switch(option), std::holds_alternative<bool*>(option.member))
        << form_of(option);
  }
}

TEST(Arguments, OfTheWorkerAreApartAndExplained) {
  expect_apart_and_explained<WorkerStart>();
  expect_apart_and_explained<StandaloneRequest>();
}

}  // namespace
}  // namespace headroom::configs
