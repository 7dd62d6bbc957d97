#include "parallel/plan/plan_json.h"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "parallel/base/check.h"

namespace headroom::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

Plan example_plan() {
  Plan plan;
  plan.layout.data_parallel_size = 2;
  plan.micro_batch_size = 8;
  plan.batch_norm_group_size = 16;
  plan.reason = "chosen: \"16\" images\nover 2 ranks";
  return plan;
}

// The JSON of example_plan() with one change.
std::string changed(const std::function<void(nlohmann::json&)>& change) {
  nlohmann::json object = nlohmann::json::parse(plan_to_json(example_plan()));
  change(object);
  return object.dump();
}

TEST(PlanJson, TheDocumentIsThis) {
  Plan plan = example_plan();
  plan.reason = "asked";
  EXPECT_EQ(plan_to_json(plan), R"({
  "layout": {
    "pipeline_parallel_size": 1,
    "data_parallel_size": 2,
    "spatial_parallel_size": 1
  },
  "backend": "gloo",
  "micro_batch_size": 8,
  "batch_norm_group_size": 16,
  "even_batch_norm_groups": false,
  "zero_stage": 0,
  "stage_begins": [
    0
  ],
  "activation_policies": [],
  "validation_images": 0,
  "predicted_peak_bytes": [],
  "predicted_phase_bytes": [],
  "reason": "asked"
}
)");
}

// Plans of earlier versions do not have this member. Their groups have the
// recorded size, with a smaller group for the remainder.
TEST(PlanJson, GroupsAreEvenOnlyWhereThePlanSaysEven) {
  Plan plan = example_plan();
  plan.even_batch_norm_groups = true;
  const std::string text = plan_to_json(plan);
  EXPECT_EQ(plan_from_json(text, "plan.json"), plan);
  nlohmann::ordered_json object = nlohmann::ordered_json::parse(text);
  object.erase("even_batch_norm_groups");
  EXPECT_EQ(plan_from_json(object.dump(), "plan.json").batch_norm_rule(),
            (BatchNormRule{16, false}));
  object["even_batch_norm_groups"] = 1;
  EXPECT_THROW(plan_from_json(object.dump(), "plan.json"), Error);
}

TEST(PlanJson, ComesBackAsItWas) {
  EXPECT_EQ(plan_from_json(plan_to_json(example_plan()), "plan.json"),
            example_plan());
  EXPECT_EQ(plan_from_json(plan_to_compact_json(example_plan()), "plan.json"),
            example_plan());
}

TEST(PlanJson, TheLaterMembersComeBackToo) {
  Plan plan = example_plan();
  plan.layout.pipeline_parallel_size = 3;
  plan.zero_stage = 3;
  plan.stage_begins = {0, 7, 18};
  plan.activation_policies = {ActivationPolicy::kLean,
                              ActivationPolicy::kOffload};
  plan.predicted_peak_bytes.assign(
      static_cast<size_t>(plan.layout.world_size()), int64_t{5} << 30);
  plan.predicted_phase_bytes.assign(
      static_cast<size_t>(plan.layout.world_size()),
      {int64_t{1} << 30, int64_t{5} << 30, 3, 4, 5});
  plan.validation_images = 7;
  EXPECT_EQ(plan_from_json(plan_to_json(plan), "plan.json"), plan);
}

TEST(PlanJson, AMessageHasEqualPredictionsOfThousandsOfRanksOnce) {
  Plan plan = example_plan();
  plan.layout = {.pipeline_parallel_size = 2,
                 .data_parallel_size = 2048,
                 .spatial_parallel_size = 1};
  plan.stage_begins = {0, 9};
  for (int rank = 0; rank < 4096; ++rank) {
    plan.predicted_peak_bytes.push_back(rank < 2048 ? 7 : 9);
    plan.predicted_phase_bytes.push_back({.training = rank < 2048 ? 7 : 9});
  }
  const std::string text = plan_to_message(plan);
  EXPECT_LT(text.size(), 700u);
  EXPECT_EQ(plan_from_json(text, "a message"), plan);
  for (const char* ranks : {"[2048, 2047]", "[2048, -1]", "[4096, 4096]", "7",
                            "[2048, 1073741824]", "[4096]"}) {
    nlohmann::json object = nlohmann::json::parse(text);
    object["predicted_ranks"] = nlohmann::json::parse(ranks);
    EXPECT_THAT(
        [&] { plan_from_json(object.dump(), "a message"); },
        ::testing::ThrowsMessage<Error>(::testing::HasSubstr("'predicted_")))
        << ranks;
  }
}

TEST(PlanJson, AnUndecidedBackendIsAProgrammersErrorInAMessage) {
  Plan plan = example_plan();
  plan.backend = Backend::kAuto;
  EXPECT_THROW(plan_to_message(plan), CheckFailure);
}

TEST(PlanJson, TheMeasuredNetworkComesBackAndAPlanWithoutHasNone) {
  const NetworkRates rates = {.machines = 4,
                              .interface = "eth0",
                              .slowest_bytes_per_second = 1.175e9,
                              .fastest_bytes_per_second = 1.2e9,
                              .latency_seconds = 8e-5,
                              .is_sample = false};
  const std::string text = plan_to_json(example_plan(), rates);
  EXPECT_EQ(plan_from_json(text, "plan.json"), example_plan());
  EXPECT_EQ(network_from_json(text, "plan.json"), rates);
  EXPECT_EQ(network_from_json(plan_to_json(example_plan()), "plan.json"),
            std::nullopt);
  EXPECT_EQ(parse_network(network_object(rates).dump()), rates);
  EXPECT_EQ(network_text(rates),
            "network: 4 machines over eth0, 9.4 to 9.6 Gbit/s, 0.08 ms");
}

TEST(PlanJson, ANetworkWithoutAMeasurementIsRefused) {
  for (const char* network :
       {"1", "{}",
        R"({"machines": 1, "interface": "", "slowest_bytes_per_second": 1,
            "fastest_bytes_per_second": 1, "latency_seconds": 0,
            "is_sample": false})",
        R"({"machines": 2, "interface": "", "slowest_bytes_per_second": 2,
            "fastest_bytes_per_second": 1, "latency_seconds": 0,
            "is_sample": false})"}) {
    EXPECT_EQ(parse_network(network), std::nullopt) << network;
    EXPECT_THROW(
        network_from_json(R"({"network": )" + std::string(network) + "}",
                          "plan.json"),
        Error);
  }
  EXPECT_EQ(parse_network("no JSON"), std::nullopt);
}

TEST(PlanJson, APlanOfAnEarlierVersionHasDefaults) {
  const std::string text = changed([](nlohmann::json& plan) {
    plan.erase("zero_stage");
    plan.erase("stage_begins");
    plan.erase("activation_policies");
    plan.erase("validation_images");
    plan.erase("predicted_peak_bytes");
    plan.erase("predicted_phase_bytes");
  });
  EXPECT_EQ(plan_from_json(text, "plan.json"), example_plan());
}

TEST(PlanJson, TheCompactFormIsOneLine) {
  EXPECT_EQ(plan_to_compact_json(example_plan()).find('\n'), std::string::npos);
}

TEST(PlanJson, AReasonThatIsNotUtf8IsStillWritten) {
  Plan plan = example_plan();
  plan.reason = "--data \xff.yaml";
  EXPECT_TRUE(nlohmann::json::accept(plan_to_json(plan)));
}

TEST(PlanJson, MembersOfALaterBuildAreIgnored) {
  const std::string text =
      changed([](nlohmann::json& plan) { plan["seconds"] = 3; });
  EXPECT_EQ(plan_from_json(text, "plan.json"), example_plan());
}

TEST(PlanJson, AnInvalidPlanIsRefusedWithFileAndMember) {
  const auto refuses = [](const std::string& text, const std::string& what) {
    EXPECT_THAT([&] { plan_from_json(text, "run/plan.json"); },
                ThrowsMessage<Error>(
                    AllOf(HasSubstr("run/plan.json: "), HasSubstr(what))))
        << text;
  };
  refuses("", "not a JSON object");
  refuses("[1]", "not a JSON object");
  refuses(std::string(100000, '['), "not a JSON object");
  refuses("{}", "'layout' is missing");
  refuses(changed([](auto& plan) { plan["layout"] = 3; }),
          "'layout' is not an object");
  refuses(changed([](auto& plan) { plan.erase("micro_batch_size"); }),
          "'micro_batch_size' is missing");
  refuses(changed([](auto& plan) { plan["micro_batch_size"] = 0; }),
          "'micro_batch_size' is 0");
  refuses(changed([](auto& plan) { plan["micro_batch_size"] = 2.5; }), "2.5");
  refuses(changed([](auto& plan) { plan["micro_batch_size"] = "2"; }),
          "'micro_batch_size' is \"2\"");
  refuses(changed([](auto& plan) {
            plan["batch_norm_group_size"] = 18446744073709551615u;
          }),
          "18446744073709551615");
  refuses(changed([](auto& plan) {
            plan["layout"]["data_parallel_size"] = 1 << 20;
          }),
          "not a whole number from 1 to 65536");
  refuses(changed([](auto& plan) { plan["backend"] = "auto"; }), "'auto'");
  refuses(changed([](auto& plan) { plan["zero_stage"] = 4; }),
          "'zero_stage' is 4, not a whole number from 0 to 3");
  refuses(changed([](auto& plan) { plan["stage_begins"] = 0; }),
          "'stage_begins' is 0, not a list of layers");
  refuses(changed([](auto& plan) {
            plan["stage_begins"] = {0, 4};
          }),
          "'stage_begins': 2 stages for a pipeline axis of 1");
  refuses(changed([](auto& plan) { plan["stage_begins"] = {-1}; }),
          "'stage_begins' is -1");
  refuses(
      changed([](auto& plan) { plan["activation_policies"] = "lean"; }),
      "'activation_policies' is \"lean\", not a list with a policy for each "
      "layer");
  refuses(changed([](auto& plan) {
            plan["activation_policies"] = {"lean", "thin"};
          }),
          "'activation_policies' has \"thin\", not \"keep\", \"lean\", "
          "\"recompute\" or \"offload\"");
  refuses(changed([](auto& plan) { plan["reason"] = 1; }),
          "'reason' is 1, not a text");
}

}  // namespace
}  // namespace headroom::plan
