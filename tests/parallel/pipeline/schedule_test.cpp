#include "parallel/pipeline/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/predict/step.h"

namespace headroom::pipeline {
namespace {

using Kind = Instruction::Kind;

std::string text(const std::vector<Instruction>& instructions) {
  std::string result;
  for (const Instruction& instruction : instructions)
    result += (result.empty() ? "" : " ") + to_string(instruction);
  return result;
}

TEST(Schedule, OneForwardOneBackward) {
  const auto kind = PipelineSchedule::k1F1B;
  EXPECT_EQ(text(schedule(kind, 3, 4, 0)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(text(schedule(kind, 3, 4, 1)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(text(schedule(kind, 3, 4, 2)), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(Schedule, OneStageIsGradientAccumulation) {
  EXPECT_EQ(text(schedule(PipelineSchedule::k1F1B, 1, 3, 0)),
            "F0 B0 F1 B1 F2 B2");
}

TEST(Schedule, FewerMicroBatchesThanStages) {
  EXPECT_EQ(text(schedule(PipelineSchedule::k1F1B, 4, 2, 0)), "F0 F1 B0 B1");
  EXPECT_EQ(text(schedule(PipelineSchedule::k1F1B, 4, 1, 1)), "F0 B0");
}

TEST(Schedule, GPipe) {
  for (int stage = 0; stage < 3; ++stage)
    EXPECT_EQ(text(schedule(PipelineSchedule::kGPipe, 3, 3, stage)),
              "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, ForwardOnly) {
  const auto kind = PipelineSchedule::kForwardOnly;
  EXPECT_EQ(text(schedule(kind, 2, 3, 0)), "F0 F1 F2");
  EXPECT_EQ(max_in_flight(kind, 2, 3, 0), 1);
  EXPECT_EQ(draw_schedule(kind, 2, 3),
            "stage 0  F0 F1 F2 .\n"
            "stage 1  .  F0 F1 F2\n");
}

TEST(Schedule, Drawing) {
  EXPECT_EQ(draw_schedule(PipelineSchedule::k1F1B, 3, 4),
            "stage 0  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3\n"
            "stage 1  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .\n"
            "stage 2  .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .\n");
  EXPECT_EQ(draw_schedule(PipelineSchedule::kGPipe, 3, 4),
            "stage 0  F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3\n"
            "stage 1  .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .\n"
            "stage 2  .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .\n");
  EXPECT_EQ(draw_schedule(PipelineSchedule::k1F1B, 1, 2),
            "stage 0  F0 B0 F1 B1\n");
}

TEST(Schedule, ColumnsAreAsWideAsTheirNumbers) {
  const std::string drawing = draw_schedule(PipelineSchedule::k1F1B, 11, 11);
  EXPECT_NE(drawing.find("stage  0  F0  F1 "), std::string::npos) << drawing;
  EXPECT_NE(drawing.find("stage 10  .   .  "), std::string::npos) << drawing;
}

// Every micro-batch occurs once forward and once backward, backward comes after
// forward, and exactly the given number is in flight.
TEST(Schedule, PropertiesOfAllSizes) {
  for (const auto kind : {PipelineSchedule::k1F1B, PipelineSchedule::kGPipe}) {
    for (int stages = 1; stages <= 6; ++stages) {
      for (int64_t count = 1; count <= 9; ++count) {
        for (int stage = 0; stage < stages; ++stage) {
          const auto instructions = schedule(kind, stages, count, stage);
          ASSERT_EQ(instructions.size(), static_cast<size_t>(2 * count));
          int64_t forward = 0, backward = 0, most = 0;
          for (const Instruction& instruction : instructions) {
            int64_t& next =
                instruction.kind == Kind::kForward ? forward : backward;
            EXPECT_EQ(instruction.micro_batch, next++);
            EXPECT_LE(backward, forward);
            most = std::max(most, forward - backward);
          }
          EXPECT_EQ(most, max_in_flight(kind, stages, count, stage));
          EXPECT_EQ(instructions.back(),
                    (Instruction{Kind::kBackward, count - 1}));
          EXPECT_FALSE(draw_schedule(kind, stages, count).empty());
        }
      }
    }
  }
}

TEST(Schedule, InFlight) {
  EXPECT_EQ(max_in_flight(PipelineSchedule::k1F1B, 4, 8, 0), 4);
  EXPECT_EQ(max_in_flight(PipelineSchedule::k1F1B, 4, 8, 3), 1);
  EXPECT_EQ(max_in_flight(PipelineSchedule::k1F1B, 4, 2, 0), 2);
  EXPECT_EQ(max_in_flight(PipelineSchedule::kGPipe, 4, 8, 3), 8);
}

TEST(Schedule, ImpossibleArguments) {
  EXPECT_THROW(schedule(PipelineSchedule::k1F1B, 2, 1, 2), CheckFailure);
  EXPECT_THROW(schedule(PipelineSchedule::k1F1B, 2, 0, 0), CheckFailure);
  EXPECT_THROW(schedule(PipelineSchedule::kGPipe, 2, 1, -1), CheckFailure);
}

// The memory model has its own copy of the schedule, because code of plans must
// not include the mechanisms.
TEST(Schedule, IsTheOneOfTheMemoryModel) {
  for (int stages = 1; stages <= 6; ++stages)
    for (int64_t count = 1; count <= 9; ++count)
      for (int stage = 0; stage < stages; ++stage) {
        std::vector<predict::StepInstruction> expected;
        for (const Instruction& one :
             schedule(PipelineSchedule::k1F1B, stages, count, stage)) {
          expected.push_back({one.kind == Kind::kForward, one.micro_batch});
        }
        EXPECT_EQ(predict::stage_instructions(stage, stages, count), expected)
            << "stage " << stage << " of " << stages << ", " << count;
      }
}

}  // namespace
}  // namespace headroom::pipeline
