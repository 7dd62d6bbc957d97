#include "worker/step/stage_forward.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <new>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/step/apply_plan.h"
#include "worker/step/device_prefetcher.h"

namespace headroom::step {
namespace {

// Joins parts [n, anchors, rows, W, fields] of a head by rows, in the memory
// order of a whole head: [n, rows, W, anchors, fields]. A part of a head
// without anchors is a map [n, channels, rows, W].
at::Tensor joined_rows(const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  int64_t rows = 0;
  for (const at::Tensor& part : parts) rows += part.size(2);
  std::vector<int64_t> sizes = {first.size(0), rows, first.size(3),
                                first.size(1)};
  std::vector<int64_t> order = {0, 3, 1, 2};
  if (first.dim() == 5) {
    sizes.push_back(first.size(4));
    order.push_back(4);
  }
  const at::Tensor whole = at::empty(sizes, first.options()).permute(order);
  int64_t begin = 0;
  for (const at::Tensor& part : parts) {
    whole.narrow(2, begin, part.size(2)).copy_(part);
    begin += part.size(2);
  }
  return whole;
}

plan::Plan replica_plan(int world_size) {
  plan::Plan plan;
  plan.layout.data_parallel_size = world_size;
  plan.micro_batch_size = 1;
  plan.batch_norm_group_size = 1;
  return plan;
}

// One forward, run by the pipeline's executor.
class Evaluation final : public pipeline::StageWork {
 public:
  Evaluation(model::LayerGraph& model, const pipeline::StageRoutes& routes,
             const at::Tensor& pixels, const at::TensorOptions& map_options,
             ParallelContext& context, GatherLayerExecutor* gathered,
             bool is_last_stage)
      : model_(model),
        routes_(routes),
        pixels_(pixels),
        map_options_(map_options),
        context_(context),
        gathered_(gathered),
        is_last_stage_(is_last_stage) {}

  std::vector<at::Tensor> forward(int64_t,
                                  std::vector<at::Tensor> received) override {
    if (gathered_ != nullptr) gathered_->begin();
    at::Tensor images;
    if (routes_.reads_images) images = network_input(pixels_, map_options_);
    std::vector<at::Tensor> outputs = run_stage_layers(
        model_, routes_, std::move(received), images, context_.evaluation());
    if (!is_last_stage_) return outputs;
    heads_ = std::move(outputs);
    return {};
  }
  std::vector<int64_t> map_sizes(int64_t, int layer) override {
    return stage_map_sizes(model_, layer, pixels_.size(0), pixels_);
  }
  void before_backward(int64_t, bool) override {}
  std::vector<at::Tensor> take_heads() { return std::move(heads_); }

 private:
  model::LayerGraph& model_;
  const pipeline::StageRoutes& routes_;
  const at::Tensor& pixels_;
  const at::TensorOptions map_options_;
  ParallelContext& context_;
  GatherLayerExecutor* const gathered_;
  const bool is_last_stage_;
  std::vector<at::Tensor> heads_;
};

}  // namespace

StageForward::StageForward(model::LayerGraph& model,
                           pipeline::StageRoutes routes,
                           collectives::Mesh& mesh, ParallelContext& context,
                           const at::TensorOptions& map_options,
                           GatherLayerExecutor* gathered)
    : model_(model),
      routes_(std::move(routes)),
      mesh_(mesh),
      context_(context),
      map_options_(map_options),
      gathered_(gathered),
      executor_(*mesh.pipeline, pipeline::PipelineSchedule::kForwardOnly,
                routes_, map_options) {}

void StageForward::skip() {
  if (gathered_ == nullptr) return;
  const int64_t parts = std::max<int64_t>(1, first_num_parts_);
  for (int64_t part = 0; part < parts; ++part) gathered_->skip();
}

ReplicaForward::ReplicaForward(model::LayerGraph& model,
                               collectives::Communicator& world,
                               const at::TensorOptions& map_options)
    : plan(replica_plan(world.size())),
      mesh(world, plan.layout),
      context(plan, /*global_batch_size=*/1, model.max_stride(), mesh,
              /*runner=*/nullptr),
      network(model, routes_of_stage(model, plan, 0), mesh, context,
              map_options, /*gathered=*/nullptr) {}

std::vector<at::Tensor> StageForward::run(const loader::Batch& batch) {
  at::NoGradGuard no_grad;
  context_.set_batch(batch.global_size, batch.image_height, batch.image_width);
  num_parts_ = std::max<int64_t>(1, first_num_parts_);
  was_tried_again_ = false;
  for (;;) {
    Attempt result = attempt(batch);
    if (!result.failure.empty()) {
      prepare_retry(result.failure, batch.images.size(0));
      continue;
    }
    if (!mesh_.is_last_stage()) return {};
    return context_.images_are_split() ? gather_rows(batch, result.heads)
                                       : result.heads;
  }
}

// Returns a failure instead of throwing, so that the caller retries outside the
// catch, where the failed attempt's memory is free again.
StageForward::Attempt StageForward::attempt(const loader::Batch& batch) {
  Attempt result;
  try {
    result.heads = run_context(batch);
  } catch (const c10::OutOfMemoryError& error) {
    result.failure = error.what_without_backtrace();
  } catch (const std::bad_alloc&) {
    result.failure = "the host's memory is used up";
  }
  return result;
}

void StageForward::prepare_retry(const std::string& failure, int64_t samples) {
  const bool is_first = is_alone() ? !std::exchange(was_tried_again_, true)
                                   : first_num_parts_ == 0;
  const bool is_smallest = !is_first && num_parts_ >= samples;
  retry_.note(failure,
              is_first ? "caches are released and it is tried again"
              : is_smallest
                  ? "nothing smaller is left"
                  : cat("the batch goes through in parts of ", 2 * num_parts_));
  if (is_smallest) {
    throw Error("memory", "one image does not fit: " + failure,
                "use a smaller --batch or --img", ExitCode::kResource);
  }
  if (!is_alone()) {
    has_thrown_ = true;
    C10_THROW_ERROR(OutOfMemoryError, failure);
  }
  if (is_first) return;
  num_parts_ *= 2;
  ++num_halvings_;
}

// All ranks of a replica cut the batch into the same number of parts, so ranks
// that gather weights gather equally often.
std::vector<at::Tensor> StageForward::run_context(const loader::Batch& batch) {
  const int64_t samples = batch.images.size(0);
  const int64_t own_parts = std::max<int64_t>(1, std::min(num_parts_, samples));
  std::vector<std::vector<at::Tensor>> parts;
  for (int64_t part = 0; part < own_parts; ++part) {
    const plan::SampleRange range = plan::share_of(
        samples, static_cast<int>(own_parts), static_cast<int>(part));
    parts.push_back(
        run_layers(batch.images.narrow(0, range.begin, range.size())));
  }
  for (int64_t part = own_parts; part < num_parts_; ++part) {
    if (gathered_ != nullptr) gathered_->skip();
  }
  if (parts.size() == 1) return std::move(parts.front());
  std::vector<at::Tensor> whole;
  for (size_t level = 0; level < parts.front().size(); ++level) {
    std::vector<at::Tensor> pieces;
    for (const std::vector<at::Tensor>& heads : parts) {
      pieces.push_back(heads[level]);
    }
    whole.push_back(at::cat(pieces));
  }
  return whole;
}

std::vector<at::Tensor> StageForward::run_layers(const at::Tensor& pixels) {
  Evaluation evaluation(model_, routes_, pixels, map_options_, context_,
                        gathered_, mesh_.is_last_stage());
  executor_.run(/*num_micro_batches=*/1, evaluation);
  return evaluation.take_heads();
}

// Allocates all tensors for the messages before the first message is sent.
std::vector<at::Tensor> StageForward::gather_rows(
    const loader::Batch& batch, const std::vector<at::Tensor>& heads) {
  const int ranks = mesh_.layout.spatial_parallel_size;
  const spatial::ImageSplit partition(batch.image_height, model_.max_stride(),
                                      ranks);
  std::vector<std::vector<at::Tensor>> parts;  // one for each level and rank
  retry_.run([&] {
    parts.clear();
    for (const at::Tensor& head : heads) {
      parts.push_back({head.contiguous()});
      if (mesh_.here.spatial_rank != 0) continue;
      const int64_t stride = batch.images.size(1) / head.size(2);
      for (int rank = 1; rank < ranks; ++rank) {
        std::vector<int64_t> sizes = head.sizes().vec();
        sizes[2] = partition.image_rows_of(rank).size() / stride;
        parts.back().push_back(at::empty(sizes, head.options()));
      }
    }
  });
  for (const std::vector<at::Tensor>& level : parts) {
    if (mesh_.here.spatial_rank != 0) mesh_.spatial->send(level.front(), 0);
    for (size_t rank = 1; rank < level.size(); ++rank) {
      mesh_.spatial->recv(level[rank], static_cast<int>(rank));
    }
  }
  if (mesh_.here.spatial_rank != 0) return {};
  return retry_.run([&] {
    std::vector<at::Tensor> whole;
    for (const std::vector<at::Tensor>& level : parts) {
      whole.push_back(joined_rows(level));
    }
    return whole;
  });
}

std::vector<at::Tensor> run_stage_layers(model::LayerGraph& model,
                                         const pipeline::StageRoutes& routes,
                                         std::vector<at::Tensor> received,
                                         const at::Tensor& images,
                                         const model::StepContext& context) {
  model::LayerGraph::LayerMaps maps;
  for (size_t i = 0; i < received.size(); ++i) {
    maps[routes.received[i].layer] = std::move(received[i]);
  }
  std::vector<int> wanted;
  for (const pipeline::SentMap& map : routes.sent) wanted.push_back(map.layer);
  return model.forward_layers(std::move(maps), images, context, wanted);
}

std::vector<int64_t> stage_map_sizes(const model::LayerGraph& model, int layer,
                                     int64_t samples,
                                     const at::Tensor& pixels) {
  const layers::MapShape& shape =
      model.map_shapes()[static_cast<size_t>(layer)];
  return {samples, shape.channels, pixels.size(1) / shape.stride,
          pixels.size(2) / shape.stride};
}

}  // namespace headroom::step
