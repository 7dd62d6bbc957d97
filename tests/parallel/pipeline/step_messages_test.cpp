#include "parallel/pipeline/mailbox.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <utility>

#include "tests/parallel/pipeline/random_pipeline.h"

namespace headroom::pipeline {
namespace {

using Kind = Instruction::Kind;

TEST(StepMessages, TheMiddleOfThreeStages) {
  // Layer 1 is sent to stages 1 and 2, layer 3 to stage 2.
  const auto routes = skip_routes({{-1}, {0}, {1}, {2}, {3, 1}}, {0, 2, 4});
  const auto list = step_messages(PipelineSchedule::k1F1B, 3, 2, 1, routes[1]);
  ASSERT_EQ(list.size(), 4u);  // F0 F1 B0 B1
  EXPECT_EQ(list[1].instruction, (Instruction{Kind::kForward, 1}));
  EXPECT_EQ(list[1].receives, (std::vector<StageMessage>{{1, 0, 1}}));
  EXPECT_EQ(list[1].sends, (std::vector<StageMessage>{{3, 2, 2}}));
  EXPECT_EQ(list[2].receives, (std::vector<StageMessage>{{3, 2, 1}}));
  EXPECT_EQ(list[2].sends, (std::vector<StageMessage>{{1, 0, 2}}));
}

TEST(StepMessages, OneStageHasNone) {
  for (const InstructionMessages& messages :
       step_messages(PipelineSchedule::k1F1B, 1, 3, 0, {})) {
    EXPECT_TRUE(messages.receives.empty());
    EXPECT_TRUE(messages.sends.empty());
  }
}

// A simulated pipeline, in which stages advance in random order.
class Simulation {
 public:
  explicit Simulation(uint32_t seed) : random_(seed) {
    const RandomPipeline pipeline = random_pipeline(seed);
    const auto routes = skip_routes(pipeline.inputs, pipeline.stage_begins);
    for (int stage = 0; stage < pipeline.num_stages(); ++stage) {
      Stage one;
      one.list = step_messages(pipeline.kind, pipeline.num_stages(),
                               pipeline.num_micro_batches, stage,
                               routes[static_cast<size_t>(stage)]);
      stages_.push_back(std::move(one));
    }
  }

  // Returns true if all stages reached their ends.
  bool run() {
    while (true) {
      std::vector<int> able;
      for (int stage = 0; stage < num_stages(); ++stage)
        if (can_advance(stage)) able.push_back(stage);
      if (able.empty()) break;
      advance(able[random_() % able.size()]);
    }
    for (const Stage& stage : stages_)
      if (stage.next < stage.list.size()) return false;
    for (const auto& [pair, channel] : channels_)
      if (!channel.empty()) return false;
    return true;
  }

  int num_let_go = 0;  // sends that are known to have arrived before the end
  int num_wrongly_known = 0;  // of these: the receive was not posted yet
  int num_mismatches = 0;     // messages that were mistaken for others

 private:
  struct Message {
    Instruction instruction;
    int layer = 0;
  };
  struct Stage {
    std::vector<InstructionMessages> list;
    size_t next = 0;
    int64_t posted = -1;  // receives are posted up to this instruction
    std::vector<StageMessage> sending;
  };

  int num_stages() const { return static_cast<int>(stages_.size()); }
  Stage& at(int stage) { return stages_[static_cast<size_t>(stage)]; }

  bool can_advance(int index) {
    Stage& stage = at(index);
    if (stage.next == stage.list.size()) return false;
    stage.posted = std::max(stage.posted, static_cast<int64_t>(stage.next));
    std::map<int, size_t> wanted;
    for (const StageMessage& message : stage.list[stage.next].receives)
      ++wanted[message.peer];
    for (const auto& [peer, count] : wanted)
      if (channels_[{peer, index}].size() < count) return false;
    return true;
  }

  void advance(int index) {
    Stage& stage = at(index);
    const InstructionMessages& messages = stage.list[stage.next];
    for (const StageMessage& message : messages.receives) {
      auto& channel = channels_[{message.peer, index}];
      if (channel.front().instruction != messages.instruction ||
          channel.front().layer != message.layer)
        ++num_mismatches;
      channel.pop_front();
      let_go(stage, message);
    }
    ++stage.next;
    stage.posted = static_cast<int64_t>(stage.next);
    for (const StageMessage& message : messages.sends) {
      channels_[{index, message.peer}].push_back(
          {messages.instruction, message.layer});
      stage.sending.push_back(message);
    }
  }

  // Frees sends by the rule of mailbox.h.
  void let_go(Stage& stage, const StageMessage& arrived) {
    std::erase_if(stage.sending, [&](const StageMessage& sent) {
      if (sent.peer != arrived.peer ||
          sent.peer_instruction > arrived.peer_instruction + 1)
        return false;
      ++num_let_go;
      if (at(sent.peer).posted < sent.peer_instruction) ++num_wrongly_known;
      return true;
    });
  }

  std::mt19937 random_;
  std::vector<Stage> stages_;
  std::map<std::pair<int, int>, std::deque<Message>> channels_;
};

TEST(StepMessages, RandomPipelinesRunToTheirEnds) {
  int num_let_go = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Simulation simulation(seed);
    EXPECT_TRUE(simulation.run()) << "seed " << seed;
    EXPECT_EQ(simulation.num_mismatches, 0) << "seed " << seed;
    // A send is treated as finished only if the peer has already posted the
    // receive for it.
    EXPECT_EQ(simulation.num_wrongly_known, 0) << "seed " << seed;
    num_let_go += simulation.num_let_go;
  }
  EXPECT_GT(num_let_go, 1000);
}

}  // namespace
}  // namespace headroom::pipeline
