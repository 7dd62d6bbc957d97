#include "worker/step/parallel_context.h"

#include <algorithm>

#include "parallel/base/check.h"

namespace headroom::step {

StepGroups groups_of(const GroupRequest& request,
                     plan::SampleRange micro_batch) {
  const std::vector<plan::SampleRange> all = plan::batch_norm_groups(
      request.global_size, request.cut.groups, request.smallest_map_elements);
  StepGroups result;
  result.span_ranks = plan::groups_span_ranks(request.cut, request.global_size,
                                              request.smallest_map_elements);
  for (const plan::SampleRange& group : all) {
    // A group without a sample here is an empty range at its position, so
    // that the ranges of all groups tile the micro-batch.
    const auto local_place = [&](int64_t sample) {
      return std::clamp(sample, micro_batch.begin, micro_batch.end) -
             micro_batch.begin;
    };
    BatchNormGroup local;
    local.local_begin = local_place(group.begin);
    local.local_end = local_place(group.end);
    if (local.local_begin == local.local_end && !result.span_ranks) continue;
    local.global_samples = group.size();
    local.counts_here =
        micro_batch.begin <= group.begin && group.begin < micro_batch.end;
    result.groups.push_back(local);
  }
  return result;
}

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
      runner_(runner),
      over_replicas_(*mesh.statistics),
      over_image_(*mesh.spatial) {}

void ParallelContext::set_batch(int64_t samples, int64_t height,
                                int64_t width) {
  groups_ = {cut_, samples, height / max_stride_ * (width / max_stride_)};
  halo_.reset();
  const int ranks = mesh_.layout.spatial_parallel_size;
  if (ranks > 1) {
    halo_.emplace(*mesh_.spatial,
                  spatial::ImageSplit(height, max_stride_, ranks));
  }
  const bool span =
      plan::groups_span_ranks(cut_, samples, groups_.smallest_map_elements);
  statistics_ = span ? &over_replicas_ : ranks > 1 ? &over_image_ : nullptr;
}

model::StepContext ParallelContext::training(
    plan::SampleRange micro_batch, const at::Tensor& batch_norm_sums) {
  StepGroups groups = groups_of(groups_, micro_batch);
  model::StepContext context = evaluation();
  context.training = true;
  context.groups = std::move(groups.groups);
  context.exchange = statistics_;
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
