#include "coordinator/run/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace headroom::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

wire::NodeCard card_of(int index, const std::string& machine,
                       int capability = 90,
                       const std::string& name = "NVIDIA H100") {
  return {.index = index,
          .uuid = "GPU-" + machine + "-" + std::to_string(index),
          .name = name,
          .compute_capability = capability};
}

Node node_of(const std::string& id, int workers, int cards,
             const std::string& machine = "") {
  Node node;
  node.node_id = id;
  node.hostname = machine.empty() ? id : machine;
  for (int k = 0; k < workers; ++k) {
    node.worker_ids.push_back(id + "-" + std::to_string(k));
  }
  for (int k = 0; k < cards; ++k) {
    node.cards.push_back(card_of(k, node.hostname));
  }
  if (cards == 0) node.no_card_reason = "there is no driver";
  return node;
}

configs::RunConfig config_of(const std::string& device) {
  configs::RunConfig config;
  config.device = device;
  return config;
}

// The given nodes with the cards that each gets, in order. Fails if a node is
// refused.
std::vector<Node> placed(const configs::RunConfig& config,
                         const std::vector<Node>& nodes) {
  std::vector<Node> registered;
  for (Node node : nodes) {
    const SlotCards chosen = choose_slot_cards(config, node, registered);
    EXPECT_FALSE(chosen.refusal) << chosen.refusal->what();
    node.slot_cards = chosen.cards;
    registered.push_back(node);
  }
  return registered;
}

std::string refusal_of(const configs::RunConfig& config, const Node& node,
                       const std::vector<Node>& others = {}) {
  const SlotCards chosen = choose_slot_cards(config, node, others);
  return chosen.refusal ? chosen.refusal->what() : "";
}

TEST(DeviceChoice, CardsThatFailedAreNotChosenAgain) {
  const Node node = node_of("h", 1, 2);
  const std::set<std::string> first = {node.cards[0].uuid};
  EXPECT_EQ(choose_slot_cards(config_of("auto"), node, {}, first).cards,
            std::vector<int64_t>{1});
  // An agent that registers again with as many workers as cards still has a
  // usable card for one worker; the worker on the failed card ends at once.
  const Node all = node_of("h", 2, 2);
  EXPECT_EQ(choose_slot_cards(config_of("auto"), all, {}, first).cards,
            (std::vector<int64_t>{1, 0}));
  EXPECT_TRUE(
      choose_slot_cards(config_of("auto"), node_of("h", 3, 2), {}, first)
          .refusal);
  // Another agent has the only usable card.
  Node other = node_of("h", 1, 2);
  other.node_id = "other";
  other.slot_cards = {1};
  const std::vector<Node> others = {other};
  EXPECT_EQ(choose_slot_cards(config_of("auto"), node, others, first).cards,
            std::vector<int64_t>{0});
  const std::set<std::string> both = {node.cards[0].uuid, node.cards[1].uuid};
  const SlotCards none = choose_slot_cards(config_of("auto"), node, {}, both);
  ASSERT_TRUE(none.refusal);
  EXPECT_THAT(none.refusal->what(), HasSubstr("have failed in this run"));
}

TEST(DeviceChoice, AutomaticIsAllCardsOrTheCpu) {
  const auto chosen = [](const std::string& device, int cards) {
    const configs::RunConfig config = config_of(device);
    const DeviceChoice choice =
        choose_devices(config, placed(config, {node_of("a", 2, cards)}));
    return choice.device + ": " + choice.text +
           (choice.warning.empty() ? "" : "; " + choice.warning);
  };
  EXPECT_EQ(chosen("auto", 2), "all: 2 x NVIDIA H100, bf16");
  EXPECT_EQ(chosen("", 2), "all: 2 x NVIDIA H100, bf16");
  EXPECT_EQ(chosen("auto", 8),
            "all: 2 x NVIDIA H100, bf16 (6 of 8 cards without a worker)");
  EXPECT_EQ(chosen("auto", 0), "cpu: CPU, fp32");
  EXPECT_EQ(chosen("cpu", 0), "cpu: CPU, fp32");
  EXPECT_EQ(chosen("cpu", 8),
            "cpu: CPU, fp32; the run is on the CPU, and 8 x NVIDIA H100 are "
            "idle: --device auto uses them");
  EXPECT_EQ(chosen("all", 2), "all: 2 x NVIDIA H100, bf16");
  EXPECT_EQ(chosen("1,0", 2), "1,0: 2 x NVIDIA H100, bf16");
}

TEST(DeviceChoice, EachWorkerHasACardOfItsOwn) {
  EXPECT_THAT(placed(config_of("auto"), {node_of("a", 3, 8)})[0].slot_cards,
              ElementsAre(0, 1, 2));
  EXPECT_THAT(placed(config_of("4,5"), {node_of("a", 2, 8)})[0].slot_cards,
              ElementsAre(4, 5));
  // mpirun -np 2 starts an agent for each slot of one machine, and each agent
  // lists all cards. The same happens with agents that were started by hand.
  const std::vector<Node> both = placed(
      config_of("auto"), {node_of("n1", 1, 2, "m"), node_of("n2", 1, 2, "m")});
  EXPECT_THAT(both[0].slot_cards, ElementsAre(0));
  EXPECT_THAT(both[1].slot_cards, ElementsAre(1));
  // Under a launcher, the order of the agents' slots decides, not the order in
  // which they register.
  Node late = node_of("n1", 1, 8, "m"), early = node_of("n2", 1, 8, "m");
  early.first_local_slot = 1;
  const std::vector<Node> ordered = placed(config_of("4,5"), {early, late});
  EXPECT_THAT(ordered[0].slot_cards, ElementsAre(5));
  EXPECT_THAT(ordered[1].slot_cards, ElementsAre(4));
  // Under srun --gpus-per-task=1 each agent sees only its own card, as number
  // 0.
  Node first = node_of("n1", 1, 1, "m"), second = node_of("n2", 1, 1, "m");
  second.cards[0].uuid = "GPU-other";
  second.first_local_slot = 1;
  const std::vector<Node> apart = placed(config_of("auto"), {first, second});
  EXPECT_THAT(apart[1].slot_cards, ElementsAre(0));
  // If sharing is allowed, workers take cards in turn.
  configs::RunConfig shared = config_of("auto");
  shared.share_devices = true;
  EXPECT_THAT(placed(shared, {node_of("a", 3, 2)})[0].slot_cards,
              ElementsAre(0, 1, 0));
}

TEST(DeviceChoice, ACardOfAnAgentThatIsGoneIsFree) {
  std::vector<Node> before =
      placed(config_of("auto"), {node_of("old", 2, 2, "m")});
  const Node after = node_of("new", 2, 2, "m");
  EXPECT_THAT(refusal_of(config_of("auto"), after, before),
              HasSubstr("m starts 4 workers, and has 2 cards"));
  before[0].voice.has_hung_up = true;
  EXPECT_EQ(refusal_of(config_of("auto"), after, before), "");
}

TEST(DeviceChoice, MoreWorkersThanCardsAreRefused) {
  EXPECT_EQ(refusal_of(config_of("auto"), node_of("a", 8, 7)),
            "[device] a starts 8 workers, and has 7 cards for them: 0 (NVIDIA "
            "H100), 1 (NVIDIA H100), 2 (NVIDIA H100), 3 (NVIDIA H100), 4 "
            "(NVIDIA H100), 5 (NVIDIA H100), 6 (NVIDIA H100): give "
            "--processes 7, or --device cpu; --set share_devices=true has "
            "several share a card");
}

TEST(DeviceChoice, ARequestedCardThatIsAbsentIsRefused) {
  EXPECT_EQ(refusal_of(config_of("all"), node_of("a", 1, 0)),
            "[device] --device all asks for cards, and a has none: there is no "
            "driver: use --device cpu, or nodes with cards");
  EXPECT_EQ(refusal_of(config_of("0,2"), node_of("a", 2, 2)),
            "[device] --device 0,2: there is no card 2 on a, which has 2: 0 "
            "(NVIDIA H100), 1 (NVIDIA H100): name some of these; "
            "CUDA_VISIBLE_DEVICES decides which are shown");
  Node busy = node_of("a", 1, 1);
  busy.cards[0].trouble = "card 0 is in exclusive mode: end that process";
  EXPECT_EQ(refusal_of(config_of("auto"), busy),
            "[device] a: card 0 is in exclusive mode: end that process: then "
            "start the run again");
  EXPECT_EQ(refusal_of(config_of("cpu"), busy), "");
}

TEST(DeviceChoice, CardsAndCpusAreNeverMixed) {
  const std::string expected =
      "[device] a has 8 x NVIDIA H100, and b has no card (there is no driver): "
      "a run is on cards on all nodes or on none: start it on nodes of one "
      "kind, or on the CPUs of all: --device cpu";
  const Node with = node_of("a", 8, 8), without = node_of("b", 8, 0);
  const auto auto_config = config_of("auto");
  EXPECT_EQ(refusal_of(auto_config, without, placed(auto_config, {with})),
            expected);
  EXPECT_EQ(refusal_of(auto_config, with, placed(auto_config, {without})),
            expected);
  const auto cpu = config_of("cpu");
  EXPECT_EQ(refusal_of(cpu, without, placed(cpu, {with})), "");
  // A node without workers has no influence on the device.
  EXPECT_EQ(
      refusal_of(auto_config, with, placed(auto_config, {node_of("b", 0, 0)})),
      "");
}

TEST(DeviceChoice, ThePrecisionSuitsAllCards) {
  Node older = node_of("b", 2, 0);
  older.cards = {card_of(0, "b", 75, "NVIDIA T4"),
                 card_of(1, "b", 75, "NVIDIA T4")};
  configs::RunConfig config = config_of("auto");
  const DeviceChoice mixed =
      choose_devices(config, placed(config, {node_of("a", 2, 2), older}));
  EXPECT_EQ(mixed.text, "2 x NVIDIA H100, 2 x NVIDIA T4, fp16");
  EXPECT_EQ(mixed.reason, "2 of 4 cards have no bf16 (compute capability 7.5)");
  // A card without a worker has no influence on the precision.
  Node spare = node_of("a", 2, 2);
  spare.cards.push_back(card_of(2, "a", 75, "NVIDIA T4"));
  EXPECT_EQ(choose_devices(config, placed(config, {spare})).precision,
            configs::Precision::kBf16);
  // A precision that was requested, or that a resumed run has, is not changed.
  config.precision = configs::Precision::kFp16;
  const DeviceChoice asked =
      choose_devices(config, placed(config, {node_of("a", 2, 2)}));
  EXPECT_EQ(asked.text, "2 x NVIDIA H100, fp16");
  EXPECT_EQ(asked.reason, "");
}

TEST(DeviceChoice, CardsThatNoWorkerCanUseAreReported) {
  Node node = node_of("a", 1, 0);
  node.unusable_cards = "the driver has 8 x NVIDIA H100, but this build …";
  const auto choose = [&](const std::string& device) {
    return choose_devices(config_of(device), placed(config_of(device), {node}));
  };
  EXPECT_EQ(choose("auto").warning,
            "the run is on the CPU; on a: the driver has 8 x NVIDIA H100, but "
            "this build …");
  EXPECT_EQ(choose("cpu").warning, "");
}

TEST(DeviceChoice, TilesAreValidatedOnTheCpu) {
  configs::RunConfig config = config_of("auto");
  config.command = "val";
  config.tile_height = config.tile_width = 640;
  const DeviceChoice choice =
      choose_devices(config, placed(config, {node_of("a", 1, 1)}));
  EXPECT_EQ(choice.device, "cpu");
  EXPECT_THAT(choice.warning, HasSubstr("tiles are looked at on the CPU"));
}

// Unit tests, and agents of tools, register no cards.
TEST(DeviceChoice, AnAgentThatHasNotListedItsCardsDecidesNothing) {
  Node node = node_of("a", 2, 0);
  node.no_card_reason.clear();
  EXPECT_THAT(placed(config_of("0,1"), {node})[0].slot_cards,
              ElementsAre(-1, -1));
  EXPECT_THAT(
      choose_devices(config_of("0,1"), placed(config_of("0,1"), {node})).text,
      StartsWith("2 workers on cards 0,1, fp32"));
}

TEST(DeviceChoice, AllNodesOfALauncherStartAsManyWorkers) {
  Node node = node_of("b", 7, 7);
  EXPECT_FALSE(launcher_count_error(node, 16)) << "no launcher";
  node.launcher_size = 2;
  EXPECT_EQ(launcher_count_error(node, 16).value().what(),
            std::string(
                "[device] b starts 7 workers for its 7 cards, and rank 0 "
                "expects 8 of each of 2 agents: see that each node has as many "
                "cards (nvidia-smi -L), or give --processes N"));
  EXPECT_FALSE(launcher_count_error(node_of("b", 8, 8), 16));
}

}  // namespace
}  // namespace headroom::coordinator
