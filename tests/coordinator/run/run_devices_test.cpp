// The device kind of a run is decided when its first generation is formed, from
// the cards that its agents registered; a restarted coordinator, and nodes that
// join later, keep it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "coordinator/log/run_state_snapshot.h"
#include "coordinator/run/device_choice.h"
#include "coordinator/run/run_state.h"
#include "parallel/base/check.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"

namespace headroom::coordinator {
namespace {

using ::testing::HasSubstr;

Node machine_of(const std::string& name, int cards, int capability = 90,
                int workers = 1) {
  Node node;
  node.node_id = node.hostname = name;
  for (int k = 0; k < workers; ++k) {
    node.worker_ids.push_back(name + "-" + std::to_string(k));
  }
  for (int k = 0; k < cards; ++k) {
    node.cards.push_back({.index = k,
                          .uuid = name + std::to_string(k),
                          .name = "NVIDIA H100",
                          .compute_capability = capability});
  }
  if (cards == 0) node.no_card_reason = "there is no driver";
  return node;
}

struct TwoNodes {
  explicit TwoNodes(const std::string& device = "auto")
      : TwoNodes(configured(device)) {}
  explicit TwoNodes(const configs::RunConfig& asked)
      : config(asked), state(options(), config, now) {}

  static configs::RunConfig configured(const std::string& device) {
    configs::RunConfig config;
    config.cfg = "yolov5n";
    config.global_batch_size = 16;
    config.device = device;
    return config;
  }
  static RunOptions options() {
    RunOptions options;
    options.quorum.expected_workers = 2;
    options.run_directory = "/runs/exp";
    options.layers = layers::layer_costs(layers::load_model_table("yolov5n"));
    return options;
  }

  std::string add(const Node& node) {
    return state.register_node(now, node).value_or("");
  }
  void join(const Node& node) {
    for (const std::string& worker : node.worker_ids) {
      state.join(now, worker, node.node_id);
    }
  }
  void start(const Node& a, const Node& b) {
    EXPECT_EQ(add(a), "");
    EXPECT_EQ(add(b), "");
    join(a);
    join(b);
  }
  configs::RunConfig settled() const {
    return configs::parse_run_config(state.settled_config_yaml(), "settled");
  }
  std::vector<std::string> lines() {
    std::vector<std::string> found;
    for (const wire::EventRecord& event : state.take_events()) {
      if (event.event != EventKind::kDevices) continue;
      found.push_back((event.warning ? "warning: " : "") + event.reason);
    }
    return found;
  }

  TimePoint now = TimePoint() + std::chrono::seconds(1000);
  configs::RunConfig config;
  RunState state;
};

TEST(RunDevices, AreChosenFromTheCardsThatAgentsRegister) {
  TwoNodes run;
  EXPECT_EQ(run.state.settled_config_yaml(), "");
  run.start(machine_of("a", 1), machine_of("b", 1));
  ASSERT_EQ(run.state.phase(), RunPhase::kRunning) << run.state.reason();
  EXPECT_EQ(run.settled().device, "all");
  EXPECT_EQ(run.settled().precision, configs::Precision::kBf16);
  EXPECT_EQ(run.state.generation().plan.backend, plan::Backend::kNccl);
  EXPECT_EQ(run.lines(), std::vector<std::string>{
                             "2 x NVIDIA H100, bf16: the cards compute in it"});
}

TEST(RunDevices, OneOlderCardDecidesThePrecision) {
  TwoNodes run;
  run.start(machine_of("a", 1), machine_of("b", 1, 75));
  EXPECT_EQ(run.settled().precision, configs::Precision::kFp16);
}

TEST(RunDevices, PlansAreForTheSlowestCard) {
  configs::RunConfig config = TwoNodes::configured("all");
  config.precision = configs::Precision::kBf16;
  const auto layers = layers::layer_costs(layers::load_model_table("yolov5n"));
  const auto named = [](const std::string& host, const std::string& card) {
    Node node = machine_of(host, 2);
    for (wire::NodeCard& one : node.cards) one.name = card;
    node.slot_cards = {1};
    return node;
  };
  const auto card_of = [&](const std::vector<Node>& nodes) {
    return card_of_run(config, nodes, layers, {}).name;
  };
  const Node h100 = named("a", "NVIDIA H100 80GB HBM3");
  const Node t4 = named("b", "Tesla T4");
  EXPECT_EQ(card_of({h100}), "NVIDIA H100 80GB");
  EXPECT_EQ(card_of({h100, t4}), "NVIDIA T4");
  EXPECT_EQ(card_of({t4, h100}), "NVIDIA T4");
  EXPECT_EQ(card_of({}), "");
  config.device = "cpu";
  EXPECT_EQ(card_of({h100}), "");
}

// With 8 images a card, a batch-norm group of 24 spans cards that may be in
// different machines. Then the plan's reason has the share of their exchanges,
// which depends on the card's speed.
TEST(RunDevices, AGenerationsPlanTakesTheCardsSpeed) {
  constexpr int kCards = 12;
  configs::RunConfig config = TwoNodes::configured("auto");
  config.global_batch_size = 8 * kCards;
  config.batch_norm_group_size = 24;
  RunOptions options = TwoNodes::options();
  options.quorum.expected_workers = kCards;
  const auto reason_on = [&](const std::string& card) {
    Node node = machine_of("a", kCards, 90, kCards);
    for (wire::NodeCard& one : node.cards) one.name = card;
    const TimePoint now = TimePoint() + std::chrono::seconds(1000);
    RunState state(options, config, now);
    EXPECT_EQ(state.register_node(now, node), std::nullopt);
    for (const std::string& worker : node.worker_ids) {
      state.join(now, worker, node.node_id);
    }
    state.tick(now);
    configs::RunConfig settled = config;
    settled.device = "all";
    settled.precision = configs::Precision::kBf16;
    EXPECT_EQ(
        state.generation().plan.reason,
        planner::choose_plan(settled, kCards,
                             {options.layers, planner::speed_of_card(card)})
            .plan->reason);
    return state.generation().plan.reason;
  };
  const std::string fast = reason_on("NVIDIA H100 80GB HBM3");
  EXPECT_THAT(fast, HasSubstr("exchanges of statistics a step"));
  EXPECT_NE(fast, reason_on("Tesla T4"));
}

// Two machines with a card of GTX 16 each, whose workers have begun the check.
struct TwoGtx16 : TwoNodes {
  explicit TwoGtx16(const configs::RunConfig& asked = configured("auto"))
      : TwoNodes(asked) {
    start(gtx16("a"), gtx16("b"));
  }
  static Node gtx16(const std::string& name) {
    Node node = machine_of(name, 1, 75);
    node.cards[0].name = "NVIDIA GeForce GTX 1660 Ti";
    return node;
  }
  void fail_the_check() {
    const std::string error = "rank 1: float16 gives a loss of nan";
    for (const char* worker : {"a-0", "b-0"}) {
      EXPECT_EQ(state.generation_left(
                    now, worker,
                    leaving_of({.was_asked = true, .float16_error = error})),
                std::nullopt);
    }
    state.tick(now);
  }
};

TEST(RunDevices, AFailedCheckOfFloat16MakesAGenerationInFloat32) {
  TwoGtx16 run;
  EXPECT_EQ(run.settled().precision, configs::Precision::kFp16);
  EXPECT_TRUE(run.settled().checks_float16);
  run.lines();
  run.fail_the_check();
  ASSERT_EQ(run.state.phase(), RunPhase::kRunning) << run.state.reason();
  EXPECT_EQ(run.state.generation().number, 2u);
  EXPECT_EQ(run.state.generation().begin, ResumePoint());
  EXPECT_FALSE(run.state.generation().keeps_state);
  EXPECT_THAT(run.state.reason(), HasSubstr("the check of fp16 failed"));
  EXPECT_EQ(run.settled().precision, configs::Precision::kFp32);
  EXPECT_FALSE(run.settled().checks_float16);
  EXPECT_EQ(run.lines(), std::vector<std::string>{
                             "warning: precision: fp32, as the check of fp16 "
                             "failed on rank 1: float16 gives a loss of nan"});
  // A coordinator that restarts goes on in float32.
  RunState again(TwoNodes::options(), run.config, run.now);
  RunStateSnapshot::restore(again, RunStateSnapshot::of(run.state), run.now,
                            std::chrono::seconds(1));
  EXPECT_EQ(again.settled_config_yaml(), run.state.settled_config_yaml());
}

TEST(RunDevices, AFailedCheckOfFloat16EndsARunThatHasNoPlanInFloat32) {
  configs::RunConfig config = TwoNodes::configured("auto");
  config.layout = plan::parse_layout("data=2");
  config.activations = "keep";
  config.micro_batch_size = config.batch_norm_group_size = 8;
  auto bytes_in = [config](configs::Precision precision) mutable {
    config.device = "all";
    config.precision = precision;
    return planner::fullest_rank_bytes(
        *planner::choose_plan(config, 2, TwoNodes::options().layers).plan);
  };
  config.memory_limit = (bytes_in(configs::Precision::kFp16) +
                         bytes_in(configs::Precision::kFp32)) /
                        2;
  TwoGtx16 run(config);
  ASSERT_EQ(run.state.phase(), RunPhase::kRunning) << run.state.reason();
  run.fail_the_check();
  EXPECT_EQ(run.state.phase(), RunPhase::kFailed);
  EXPECT_EQ(run.state.exit_code(), static_cast<int>(ExitCode::kNoPlan));
  EXPECT_THAT(run.state.reason(),
              HasSubstr("the check of fp16 failed on rank 1: float16 gives a "
                        "loss of nan, and in fp32 "));
}

TEST(RunDevices, WithoutCardsTheRunIsOnTheCpu) {
  TwoNodes run;
  run.start(machine_of("a", 0), machine_of("b", 0));
  EXPECT_EQ(run.settled().device, "cpu");
  EXPECT_EQ(run.settled().precision, configs::Precision::kFp32);
  EXPECT_EQ(run.state.generation().plan.backend, plan::Backend::kGloo);
}

TEST(RunDevices, IdleCardsAreAWarning) {
  TwoNodes run("cpu");
  run.start(machine_of("a", 8), machine_of("b", 8));
  EXPECT_EQ(run.lines(),
            (std::vector<std::string>{
                "CPU, fp32",
                "warning: the run is on the CPU, and 16 x NVIDIA H100 are "
                "idle: --device auto uses them"}));
}

TEST(RunDevices, NodesOfTwoKindsEndARunThatWaits) {
  for (const bool cards_first : {true, false}) {
    TwoNodes run;
    EXPECT_EQ(run.add(machine_of("a", cards_first ? 1 : 0)), "");
    const std::string why = run.add(machine_of("b", cards_first ? 0 : 1));
    EXPECT_THAT(why, HasSubstr("a run is on cards on all nodes or on none"));
    EXPECT_EQ(run.state.phase(), RunPhase::kFailed);
    EXPECT_EQ(run.state.exit_code(), static_cast<int>(ExitCode::kRequest));
    EXPECT_EQ(run.state.reason(), why);
  }
}

TEST(RunDevices, RequestedCardsThatAreAbsentEndAWaitingRun) {
  TwoNodes run("all");
  EXPECT_THAT(run.add(machine_of("a", 0)),
              HasSubstr("--device all asks for cards, and a has none"));
  EXPECT_TRUE(run.state.over());
}

TEST(RunDevices, ANodeThatJoinsLaterHasTheRunsKindOrIsRefused) {
  TwoNodes run;
  run.start(machine_of("a", 1), machine_of("b", 1));
  EXPECT_THAT(run.add(machine_of("c", 0)), HasSubstr("c has none"));
  EXPECT_EQ(run.state.phase(), RunPhase::kRunning) << "the others go on";
  EXPECT_EQ(run.add(machine_of("d", 1)), "");
  EXPECT_EQ(run.state.membership().find_node("d")->slot_cards,
            std::vector<int64_t>{0});
}

TEST(RunDevices, AFlagThatNeedsACardIsRefusedWithoutOne) {
  TwoNodes run;
  run.config.tf32 = true;
  RunState state(TwoNodes::options(), run.config, run.now);
  for (const char* name : {"a", "b"}) {
    const Node node = machine_of(name, 0);
    EXPECT_EQ(state.register_node(run.now, node), std::nullopt);
    state.join(run.now, node.worker_ids[0], name);
  }
  EXPECT_EQ(state.exit_code(), static_cast<int>(ExitCode::kRequest));
  EXPECT_THAT(state.reason(), HasSubstr("--tf32"));
}

TEST(RunDevices, ASuccessorOfTheCoordinatorKeepsThem) {
  TwoNodes run;
  run.start(machine_of("a", 1), machine_of("b", 1));
  const std::string bytes = RunStateSnapshot::of(run.state).SerializeAsString();
  wire::RunStateSnapshot image;
  ASSERT_TRUE(image.ParseFromString(bytes));
  TwoNodes next;
  RunStateSnapshot::restore(next.state, image, next.now,
                            std::chrono::seconds(10));
  EXPECT_EQ(next.state.settled_config_yaml(), run.state.settled_config_yaml());
  EXPECT_EQ(next.state.membership().find_node("b")->slot_cards,
            std::vector<int64_t>{0});
  EXPECT_THAT(next.add(machine_of("c", 0)), HasSubstr("c has none"));
  EXPECT_EQ(RunStateSnapshot::of(next.state).SerializeAsString(), bytes);
}

}  // namespace
}  // namespace headroom::coordinator
