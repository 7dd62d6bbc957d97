#include "worker/step/parallel_context.h"

#include <algorithm>
#include <numeric>

#include "parallel/base/check.h"

namespace headroom::step {

StepGroups groups_of(const GroupRequest& request,
                     plan::SampleRange micro_batch) {
  const std::vector<plan::SampleRange> all = plan::batch_norm_groups(
      request.global_size, request.cut.groups, request.smallest_map_elements);
  StepGroups result;
  for (size_t i = 0; i < all.size(); ++i) {
    const plan::SampleRange& group = all[i];
    const auto local_place = [&](int64_t sample) {
      return std::clamp(sample, micro_batch.begin, micro_batch.end) -
             micro_batch.begin;
    };
    BatchNormGroup local;
    local.local_begin = local_place(group.begin);
    local.local_end = local_place(group.end);
    if (local.local_begin == local.local_end) continue;
    if (result.groups.empty()) result.first = static_cast<int64_t>(i);
    local.global_samples = group.size();
    local.counts_here =
        micro_batch.begin <= group.begin && group.begin < micro_batch.end;
    result.groups.push_back(local);
  }
  return result;
}

namespace {

// Gives the data ranks that share a group of the round one color, and each
// other rank a color of its own. Empty if the round has no groups.
std::vector<int> colors_of(const std::vector<plan::SharedGroup>& shared,
                           int round, int num_ranks) {
  std::vector<int> colors(static_cast<size_t>(num_ranks));
  std::iota(colors.begin(), colors.end(), 0);
  bool is_empty = true;
  for (const plan::SharedGroup& group : shared) {
    if (group.round != round) continue;
    is_empty = false;
    std::fill_n(colors.begin() + group.first_rank, group.num_ranks(),
                group.first_rank);
  }
  if (is_empty) colors.clear();
  return colors;
}

}  // namespace

std::function<plan::SampleRange(int64_t height)> own_rows(
    const collectives::Mesh& mesh, int64_t max_stride) {
  const int ranks = mesh.layout.spatial_parallel_size;
  const int rank = mesh.here.spatial_rank;
  return [=](int64_t height) {
    const spatial::RowRange rows =
        spatial::ImageSplit(height, max_stride, ranks).image_rows_of(rank);
    return plan::SampleRange{rows.begin, rows.end};
  };
}

ParallelContext::ParallelContext(const plan::Plan& plan,
                                 int64_t global_batch_size, int64_t max_stride,
                                 collectives::Mesh& mesh,
                                 model::LayerExecutor* runner)
    : cut_{global_batch_size, plan.layout.data_parallel_size,
           plan.micro_batch_size, plan.batch_norm_rule()},
      max_stride_(max_stride),
      mesh_(mesh),
      runner_(runner) {}

GroupRequest ParallelContext::request_of(int64_t samples, int64_t height,
                                         int64_t width) const {
  return {cut_, samples, height / max_stride_ * (width / max_stride_)};
}

void ParallelContext::begin_generation(const std::vector<int64_t>& batches,
                                       int64_t height, int64_t width) {
  exchanges_.clear();
  for (const int64_t samples : batches) {
    exchange_of(request_of(samples, height, width));
  }
}

StatisticsExchange* ParallelContext::exchange_of(const GroupRequest& batch) {
  const std::pair key{batch.global_size, batch.smallest_map_elements < 2};
  const auto known = exchanges_.find(key);
  if (known != exchanges_.end()) return known->second.get();
  return (exchanges_[key] = make_exchange(batch)).get();
}

bool ParallelContext::exchanges_statistics() const {
  const auto known =
      exchanges_.find({groups_.global_size, groups_.smallest_map_elements < 2});
  return known != exchanges_.end() && known->second != nullptr;
}

std::unique_ptr<StatisticsExchange> ParallelContext::make_exchange(
    const GroupRequest& batch) {
  using data_parallel::CommunicatorExchange;
  const int rank = mesh_.here.data_parallel_rank;
  const bool splits_images = mesh_.layout.spatial_parallel_size > 1;
  const std::vector<plan::SharedGroup> shared =
      plan::shared_groups(cut_, batch.global_size, batch.smallest_map_elements);
  if (shared.empty()) {
    if (!splits_images) return nullptr;
    return std::make_unique<CommunicatorExchange>(*mesh_.spatial);
  }
  const StepGroups own = groups_of(
      batch,
      plan::part_of(cut_, batch.global_size, batch.smallest_map_elements, rank)
          .local);
  const int64_t num_groups = std::ssize(own.groups);
  std::vector<CommunicatorExchange::Part> parts;
  int64_t first_alone = 0, end_alone = num_groups;
  for (const int round : {0, 1}) {
    const std::vector<int> colors =
        colors_of(shared, round, cut_.data_parallel_size);
    if (colors.empty()) continue;
    collectives::Communicator& ranks = mesh_.sharing(colors);
    const auto mine =
        std::ranges::find_if(shared, [&](const plan::SharedGroup& group) {
          return group.round == round && group.first_rank <= rank &&
                 rank <= group.last_rank;
        });
    if (mine == shared.end()) continue;
    const int64_t place = mine->group - own.first;
    parts.push_back({&ranks, place, place + 1});
    if (place == 0) first_alone = 1;
    if (place == num_groups - 1) end_alone = place;
  }
  if (splits_images && first_alone < end_alone) {
    parts.push_back({mesh_.spatial.get(), first_alone, end_alone});
  }
  if (parts.empty() && !splits_images) return nullptr;
  return std::make_unique<CommunicatorExchange>(std::move(parts), num_groups);
}

void ParallelContext::set_batch(int64_t samples, int64_t height,
                                int64_t width) {
  groups_ = request_of(samples, height, width);
  halo_.reset();
  const int ranks = mesh_.layout.spatial_parallel_size;
  if (ranks > 1) {
    halo_.emplace(*mesh_.spatial,
                  spatial::ImageSplit(height, max_stride_, ranks));
  }
}

model::StepContext ParallelContext::training(
    plan::SampleRange micro_batch, const at::Tensor& batch_norm_sums) {
  StepGroups groups = groups_of(groups_, micro_batch);
  model::StepContext context = evaluation();
  context.training = true;
  context.groups = std::move(groups.groups);
  context.exchange = exchange_of(groups_);
  if (mesh_.here.spatial_rank != 0) {
    for (BatchNormGroup& group : context.groups) group.counts_here = false;
  }
  context.batch_norm_sums = batch_norm_sums;
  return context;
}

model::StepContext ParallelContext::evaluation() {
  model::StepContext context;
  if (halo_) context.halo = &*halo_;
  context.runner = runner_;
  return context;
}

int64_t ParallelContext::num_groups() const {
  return static_cast<int64_t>(
      plan::batch_norm_groups(groups_.global_size, cut_.groups,
                              groups_.smallest_map_elements)
          .size());
}

RowWindow ParallelContext::window(int64_t local_rows) const {
  return halo_ ? halo_->window(local_rows) : RowWindow{0, local_rows};
}

}  // namespace headroom::step
