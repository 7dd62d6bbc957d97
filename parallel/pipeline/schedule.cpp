#include "parallel/pipeline/schedule.h"

#include <algorithm>
#include <map>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::pipeline {
namespace {

using Kind = Instruction::Kind;

void check_arguments(int num_stages, int64_t num_micro_batches, int stage) {
  HEADROOM_CHECK(stage >= 0 && stage < num_stages && num_micro_batches > 0,
                 cat("stage ", stage, " of ", num_stages, ", ",
                     num_micro_batches, " micro-batches"));
}

// The time slot of each stage's instructions, if each takes one slot and starts
// as soon as its stage and its inputs are ready.
std::vector<std::map<int64_t, Instruction>> time_slots(
    const std::vector<std::vector<Instruction>>& stages) {
  const size_t num_stages = stages.size();
  std::vector<std::map<int64_t, Instruction>> slots(num_stages);
  std::vector<size_t> next(num_stages, 0);
  std::vector<int64_t> free_at(num_stages, 0);
  // (stage, kind, micro-batch) -> the slot after that instruction.
  std::map<std::pair<size_t, std::pair<Kind, int64_t>>, int64_t> done_at;
  const auto ready_at = [&](size_t stage, const Instruction& instruction) {
    const bool forward = instruction.kind == Kind::kForward;
    if (forward ? stage == 0 : stage + 1 == num_stages) return int64_t{0};
    const auto found =
        done_at.find({forward ? stage - 1 : stage + 1,
                      {instruction.kind, instruction.micro_batch}});
    return found == done_at.end() ? int64_t{-1} : found->second;
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t stage = 0; stage < num_stages; ++stage) {
      while (next[stage] < stages[stage].size()) {
        const Instruction& instruction = stages[stage][next[stage]];
        const int64_t ready = ready_at(stage, instruction);
        if (ready < 0) break;
        const int64_t slot = std::max(ready, free_at[stage]);
        slots[stage][slot] = instruction;
        free_at[stage] = slot + 1;
        done_at[{stage, {instruction.kind, instruction.micro_batch}}] =
            slot + 1;
        ++next[stage];
        moved = true;
      }
    }
  }
  for (size_t stage = 0; stage < num_stages; ++stage)
    HEADROOM_CHECK(next[stage] == stages[stage].size(),
                   cat("stage ", stage, " waits for ever"));
  return slots;
}

}  // namespace

std::string to_string(const Instruction& instruction) {
  return cat(instruction.kind == Kind::kForward ? "F" : "B",
             instruction.micro_batch);
}

std::vector<Instruction> schedule(PipelineSchedule kind, int num_stages,
                                  int64_t num_micro_batches, int stage) {
  const int64_t ahead =
      max_in_flight(kind, num_stages, num_micro_batches, stage);
  std::vector<Instruction> instructions;
  int64_t forward = 0;
  for (int64_t backward = 0; backward < num_micro_batches; ++backward) {
    while (forward < std::min(backward + ahead, num_micro_batches))
      instructions.push_back({Kind::kForward, forward++});
    if (kind != PipelineSchedule::kForwardOnly)
      instructions.push_back({Kind::kBackward, backward});
  }
  return instructions;
}

int64_t max_in_flight(PipelineSchedule kind, int num_stages,
                      int64_t num_micro_batches, int stage) {
  check_arguments(num_stages, num_micro_batches, stage);
  if (kind == PipelineSchedule::kGPipe) return num_micro_batches;
  if (kind == PipelineSchedule::kForwardOnly) return 1;
  return std::min<int64_t>(num_stages - stage, num_micro_batches);
}

std::string draw_schedule(PipelineSchedule kind, int num_stages,
                          int64_t num_micro_batches) {
  std::vector<std::vector<Instruction>> stages;
  for (int stage = 0; stage < num_stages; ++stage)
    stages.push_back(schedule(kind, num_stages, num_micro_batches, stage));
  const auto slots = time_slots(stages);

  const size_t stage_width = std::to_string(num_stages - 1).size();
  const size_t cell_width = 2 + std::to_string(num_micro_batches - 1).size();
  int64_t num_slots = 0;
  for (const auto& line : slots)
    num_slots = std::max(num_slots, line.rbegin()->first + 1);

  std::string drawing;
  for (int stage = 0; stage < num_stages; ++stage) {
    const std::string number = std::to_string(stage);
    std::string line =
        "stage " + std::string(stage_width - number.size(), ' ') + number + " ";
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      const auto found = slots[static_cast<size_t>(stage)].find(slot);
      const std::string cell = found == slots[static_cast<size_t>(stage)].end()
                                   ? "."
                                   : to_string(found->second);
      line += " " + cell + std::string(cell_width - 1 - cell.size(), ' ');
    }
    drawing += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return drawing;
}

}  // namespace headroom::pipeline
