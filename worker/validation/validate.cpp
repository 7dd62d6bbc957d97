#include "worker/validation/validate.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/machine/core_turn.h"
#include "worker/data/loader/loader.h"
#include "worker/step/device_prefetcher.h"
#include "worker/step/run_data.h"

namespace headroom::validation {
namespace {

// Counts the images and matches of the whole batch, because the loss terms are
// means over it.
loss::GlobalCounts counts_of(const loader::Batch& batch) {
  loss::GlobalCounts counts{batch.images.size(0), {}};
  counts.matches.resize(batch.targets.front().size());
  for (const std::vector<loss::LevelTargets>& part : batch.targets) {
    for (size_t level = 0; level < part.size(); ++level) {
      counts.matches[level] += part[level].size();
    }
  }
  return counts;
}

// The parts of a batch on which the network runs at once: one per micro-batch.
// The parts share the batch's pixels, but do not contain its faults.
std::vector<loader::Batch> parts_of(const loader::Batch& batch) {
  std::vector<loader::Batch> parts;
  for (size_t i = 0; i < batch.micro_batches.size(); ++i) {
    const plan::SampleRange& range = batch.micro_batches[i];
    loader::Batch part;
    part.global_size = range.size();
    part.micro_batches = {{0, range.size()}};
    part.images = batch.images.narrow(0, range.begin, range.size());
    part.image_height = batch.image_height;
    part.image_width = batch.image_width;
    part.labels = loader::labels_of(batch, range);
    part.samples.assign(batch.samples.begin() + range.begin,
                        batch.samples.begin() + range.end);
    part.geometry.assign(batch.geometry.begin() + range.begin,
                         batch.geometry.begin() + range.end);
    part.targets = {batch.targets[i]};
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<metrics::LabelledBox> labels_of_image(
    const loader::Batch& batch, int64_t image,
    const metrics::SourceMapping& letterbox) {
  std::vector<metrics::LabelledBox> boxes;
  for (const loss::LabelRow& row : batch.labels) {
    if (row.image != image) continue;
    const metrics::Corners corners = metrics::label_corners(
        row.cx, row.cy, row.w, row.h, batch.image_height, batch.image_width);
    boxes.push_back(
        {metrics::clipped(metrics::to_source(corners, letterbox), letterbox),
         static_cast<int32_t>(row.class_index)});
  }
  return boxes;
}

metrics::SourceMapping letterbox_of(const loader::Batch::Geometry& geometry) {
  return {geometry.height, geometry.width, geometry.ratio, geometry.pad_x,
          geometry.pad_y};
}

// The heads are all levels' distances, then all levels' classes.
loss::PlaceLoss place_loss_of(const model::LayerGraph& model,
                              const std::vector<at::Tensor>& heads,
                              const loader::Batch& part,
                              const loss::PlaceGains& gains) {
  const std::vector<model::LayerGraph::Level>& levels = model.levels();
  std::vector<loss::PlaceMaps> maps;
  for (size_t level = 0; level < levels.size(); ++level) {
    maps.push_back({heads[level].cpu(), heads[levels.size() + level].cpu(),
                    levels[level].stride});
  }
  loss::PlaceLossRule rule;
  rule.gains = gains;
  rule.num_classes = model.num_classes();
  return loss::place_loss(maps, part.labels, rule);
}

void add_losses(const model::LayerGraph& model,
                const std::vector<at::Tensor>& heads, const loader::Batch& part,
                const loss::GlobalCounts& counts,
                const ValidationOptions& options, BatchFindings& findings) {
  at::Tensor items;
  if (model.has_anchors()) {
    items =
        loss::detection_loss(heads, part.targets.at(0), counts, options.gains)
            .items;
  } else {
    items = place_loss_of(model, heads, part, options.place_gains).items;
  }
  const at::Tensor sums = items.to(at::kCPU);
  const double* terms = sums.const_data_ptr<double>();
  std::copy_n(terms, kNumLossTerms, findings.losses.begin());
  if (!model.has_anchors()) findings.weights = terms[kNumLossTerms];
}

// After all parts of a batch. Does nothing for a head with anchors.
void divide_by_weights(BatchFindings& findings) {
  for (double& term : findings.losses) term /= std::max(findings.weights, 1.0);
}

BatchFindings examine(const model::LayerGraph& model,
                      std::vector<at::Tensor> heads, const loader::Batch& batch,
                      const loss::GlobalCounts& counts,
                      const ValidationOptions& options) {
  BatchDetections detections = detect(model, std::move(heads), batch, options);
  const int64_t num_images = batch.images.size(0);
  BatchFindings findings;
  add_losses(model, detections.heads, batch, counts, options, findings);
  for (int64_t image = 0; image < num_images; ++image) {
    std::vector<metrics::LabelledBox> labels =
        labels_of_image(batch, image, letterbox_of(batch.geometry[image]));
    add_image({batch.samples.at(image), std::move(detections.images[image]),
               std::move(labels)},
              options, findings);
  }
  return findings;
}

BatchFindings examine_part(step::StageForward& network,
                           const loader::Batch& part,
                           const loss::GlobalCounts& counts,
                           const ValidationOptions& options) {
  if (options.before_part) options.before_part(part);
  const std::vector<at::Tensor> heads = network.run(part);
  if (!network.holds_heads()) return {};
  return options.retry.run(
      [&] { return examine(network.model(), heads, part, counts, options); });
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

loss::PlaceGains place_gains(const configs::Hyperparameters& hyp) {
  return {
      .box = hyp.anchor_free_box, .cls = hyp.anchor_free_cls, .dfl = hyp.dfl};
}

loss::LossGains loss_gains(const configs::RunConfig& config,
                           const model::LayerGraph& model,
                           const loader::LoaderOptions& input,
                           const std::vector<double>& class_weights) {
  loss::LossGains gains = loss::scale_gains(
      config.hyp, static_cast<int64_t>(model.levels().size()),
      model.num_classes(), std::max(input.image_height, input.image_width),
      config.label_smoothing);
  loss::weigh_classes(class_weights, gains);
  return gains;
}

ValidationOptions options_of(const configs::RunConfig& config,
                             const loss::LossGains& gains,
                             const std::vector<std::string>& class_names) {
  ValidationOptions options;
  options.confidence_threshold = config.confidence_threshold;
  options.nms_iou_threshold = config.nms_iou_threshold;
  options.clip_boxes = config.clip_boxes;
  options.max_detections = config.max_detections;
  options.gains = gains;
  options.place_gains = place_gains(config.hyp);
  options.class_names = class_names;
  return options;
}

double nms_iou_threshold(const ValidationOptions& options, bool has_anchors) {
  return metrics::iou_threshold_of(options.nms_iou_threshold, has_anchors, 0.6);
}

BatchDetections detect(const model::LayerGraph& model,
                       std::vector<at::Tensor> heads,
                       const loader::Batch& batch,
                       const ValidationOptions& options) {
  BatchDetections result;
  result.heads = std::move(heads);
  metrics::NmsOptions nms;
  nms.confidence_threshold = options.confidence_threshold;
  nms.iou_threshold = nms_iou_threshold(options, model.has_anchors());
  nms.max_detections = options.max_detections;
  result.images =
      metrics::non_maximum_suppression(model.decode(result.heads), nms);
  for (size_t image = 0; image < result.images.size(); ++image) {
    const metrics::SourceMapping letterbox =
        letterbox_of(batch.geometry[image]);
    for (metrics::Detection& detection : result.images[image]) {
      detection.box = metrics::to_source(detection.box, letterbox);
      if (options.clip_boxes) {
        detection.box = metrics::clipped(detection.box, letterbox);
      }
    }
  }
  return result;
}

ValidationResult validate(step::StageForward& network,
                          loader::BatchSource& source,
                          collectives::Communicator& world,
                          const ValidationOptions& options) {
  at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  const int64_t num_batches = source.batches_per_epoch();
  int64_t most_batches = num_batches;
  world.all_reduce(at::from_blob(&most_batches, {1}, at::kLong),
                   collectives::ReduceOp::kMax);
  RankFindings mine(options.class_names.size());
  int64_t num_images = 0;
  for (int64_t i = 0; i < most_batches; ++i) {
    int64_t passes = 0;
    if (i < num_batches) {
      const loader::Batch batch = source.next();
      const loss::GlobalCounts counts = counts_of(batch);
      BatchFindings findings;
      for (const loader::Batch& part : parts_of(batch)) {
        const CoreTurn::Hold turn =
            options.takes_core_turns
                ? take_core_turn(world.size(), at::get_num_threads())
                : CoreTurn::Hold(nullptr);
        findings.add(examine_part(network, part, counts, options));
        ++passes;
      }
      divide_by_weights(findings);
      findings.faults = batch.faults;
      num_images += batch.images.size(0);
      if (options.images_done) options.images_done(num_images);
      if (network.holds_heads()) mine.add(std::move(findings));
    }
    for (; passes < options.passes_per_batch; ++passes) network.skip();
  }
  ValidationResult result = summarise(world, std::move(mine), options);
  result.seconds = seconds_since(start);
  return result;
}

ValidationResult validate_heads(const model::LayerGraph& model,
                                const HeadsOf& heads_of,
                                loader::BatchSource& source,
                                const ValidationOptions& options) {
  at::NoGradGuard no_grad;
  const auto start = std::chrono::steady_clock::now();
  RankFindings all(options.class_names.size());
  for (int64_t i = 0; i < source.batches_per_epoch(); ++i) {
    const loader::Batch batch = source.next();
    const loss::GlobalCounts counts = counts_of(batch);
    BatchFindings findings;
    for (const loader::Batch& part : parts_of(batch)) {
      findings.add(examine(model, heads_of(part), part, counts, options));
    }
    divide_by_weights(findings);
    findings.faults = batch.faults;
    all.add(std::move(findings));
  }
  ValidationResult result = summarise(*collectives::make_single_communicator(),
                                      std::move(all), options);
  result.seconds = seconds_since(start);
  return result;
}

configs::RunConfig val_config(const ImagesToScore& images) {
  configs::RunConfig config;
  config.command = "val";
  config.data = images.data;
  config.weights = images.weights;
  config.cfg = images.cfg;
  config.image_height = images.height;
  config.image_width = images.width;
  config.global_batch_size = images.batch;
  return config;
}

ValidationResult score_network(model::LayerGraph& model,
                               const ImagesToScore& images, HeadsOf heads_of) {
  const configs::RunConfig config = val_config(images);
  const step::RunData inputs = step::read_data(config);
  if (inputs.num_classes() != model.num_classes()) {
    throw Error(
        "data",
        cat(images.data, " has ", counted(inputs.num_classes(), "class"),
            ", but the model ", model.num_classes()),
        "give the data set that the weights were trained on");
  }
  loader::LoaderOptions options = step::loader_options(config, model);
  options.mode = loader::LoaderMode::kValidation;
  options.dataset = &*inputs.validation;
  options.global_batch_size = options.micro_batch_size =
      config.global_batch_size;
  loader::Loader loader(options);
  if (!heads_of) {
    heads_of = [&model](const loader::Batch& batch) {
      return model.forward(step::network_input(batch.images, at::kFloat),
                           model::StepContext());
    };
  }
  const HeadsOf counted_heads = [&](const loader::Batch& batch) {
    std::vector<at::Tensor> heads = heads_of(batch);
    for (int64_t i = 0; images.image_done && i < batch.images.size(0); ++i) {
      images.image_done(inputs.validation->size());
    }
    return heads;
  };
  return validate_heads(
      model, counted_heads, loader,
      options_of(config,
                 loss_gains(config, model, options, inputs.class_weights),
                 inputs.class_names));
}

std::string describe(const ValidationResult& scores) {
  return "mAP50 " + fixed_text(scores.map50, 4) + ", mAP " +
         fixed_text(scores.map, 4) + " on " + counted(scores.images, "image");
}

}  // namespace headroom::validation
