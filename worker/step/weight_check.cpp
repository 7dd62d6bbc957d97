#include "worker/step/weight_check.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/step/step_reports.h"

namespace headroom::step {
namespace {

constexpr int64_t kWordsAtOnce = int64_t{1} << 18;

std::string text_of(const std::vector<int>& ranks) {
  constexpr size_t kNamed = 4;
  return (ranks.size() == 1 ? "rank " : "ranks ") +
         first_of(ranks, kNamed, [](int rank) { return std::to_string(rank); });
}

// Adds the judgement of one stage, whose ranks are given by digest.
void judge_stage(const std::map<uint64_t, std::vector<int>>& groups,
                 WeightJudgement& judgement) {
  if (groups.size() < 2) return;
  const auto size = [](const auto& group) { return group.second.size(); };
  const auto largest = std::ranges::max_element(groups, {}, size);
  const bool is_decided = std::ranges::count(groups, size(*largest), size) == 1;
  std::vector<int> others;
  for (const auto& [digest, ranks] : groups) {
    if (is_decided && ranks == largest->second) continue;
    others.insert(others.end(), ranks.begin(), ranks.end());
  }
  std::ranges::sort(others);
  if (!judgement.reason.empty()) judgement.reason += ", ";
  judgement.reason +=
      text_of(others) + (others.size() == 1 ? " has" : " have") +
      (is_decided ? " other weights than " + text_of(largest->second)
                  : " different weights, and no majority shows which of them "
                    "computes wrong");
  std::vector<int>& to = is_decided ? judgement.wrong : judgement.undecided;
  to.insert(to.end(), others.begin(), others.end());
}

bool has(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

}  // namespace

uint64_t digest_of(std::span<const at::Tensor> buffers) {
  constexpr int64_t kOdd = 0x1E3779B97F4A7C15;
  constexpr int64_t kOdd32 = 0x9E3779B1;
  constexpr int64_t kLow32 = 0xFFFFFFFF;
  const at::NoGradGuard no_grad;
  const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
  if (buffers.empty()) return 0;
  const auto words =
      at::TensorOptions(buffers.front().device()).dtype(at::kLong);
  const at::Tensor factors = at::arange(kWordsAtOnce, words);
  factors.mul_(kOdd32).bitwise_and_(kLow32).bitwise_or_(1);
  const at::Tensor digest = at::zeros({1}, words);
  for (const at::Tensor& buffer : buffers) {
    const at::Tensor bits = buffer.view(at::kInt);
    for (int64_t begin = 0; begin < bits.numel(); begin += kWordsAtOnce) {
      const int64_t count = std::min(kWordsAtOnce, bits.numel() - begin);
      const at::Tensor piece = bits.narrow(0, begin, count).to(at::kLong);
      digest.mul_(kOdd).add_(piece.mul_(factors.narrow(0, 0, count)).sum());
    }
  }
  return static_cast<uint64_t>(digest.cpu().const_data_ptr<int64_t>()[0]);
}

uint64_t weight_digest(const TrainingState& state) {
  std::vector<at::Tensor> whole;
  for (const TrainingState::Buffer& buffer : state.buffers()) {
    if (buffer.shards == nullptr && buffer.flat->numel() > 0) {
      whole.push_back(*buffer.flat);
    }
  }
  return digest_of(whole);
}

WeightJudgement judge_weights(
    const std::vector<std::optional<uint64_t>>& digests, int num_stages) {
  WeightJudgement judgement;
  const size_t in_stage = digests.size() / static_cast<size_t>(num_stages);
  std::map<uint64_t, std::vector<int>> groups;  // of one stage
  for (size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank]) groups[*digests[rank]].push_back(static_cast<int>(rank));
    if ((rank + 1) % in_stage != 0) continue;
    judge_stage(groups, judgement);
    groups.clear();
  }
  return judgement;
}

WeightsDiffer::WeightsDiffer(WeightJudgement judgement, int rank,
                             int64_t committed_steps)
    : std::runtime_error(cat("after ", counted(committed_steps, "step"), " ",
                             judgement.reason)),
      judgement_(std::move(judgement)),
      is_wrong_(has(judgement_.wrong, rank)),
      is_undecided_(has(judgement_.undecided, rank)) {}

bool UndecidedDifferences::is_repeated(int64_t committed_steps,
                                       int64_t within_steps) {
  const auto before = std::exchange(newest_, committed_steps);
  return before && committed_steps - *before <= within_steps;
}

void require_equal_weights(const TrainingState& state,
                           collectives::Mesh& mesh) {
  const int num_stages = mesh.layout.pipeline_parallel_size;
  if (mesh.world.size() == num_stages) return;
  StepReports reports(mesh.world.rank(), mesh.world.size());
  reports.set_weight_digest(weight_digest(state));
  reports.all_reduce(mesh.world);
  WeightJudgement judgement =
      judge_weights(reports.weight_digests(), num_stages);
  if (judgement.are_equal()) return;
  throw WeightsDiffer(std::move(judgement), mesh.world.rank(),
                      state.counters.committed_steps);
}

}  // namespace headroom::step
