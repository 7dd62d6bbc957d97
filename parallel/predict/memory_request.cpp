#include "parallel/predict/memory_request.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "configs/layers/model_table.h"
#include "configs/multi_scale.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/machine/processor.h"

namespace headroom::predict {
namespace {

constexpr int64_t kSyntheticBoxesPerImage = 8;  // --synthetic-input
// Validation needs no memory for backward, but runs on one data rank alone.
constexpr int64_t kMostValidationImages = 32;

// A teacher is a shipped model with the student's classes. The planner's search
// needs its layers hundreds of times, so they are cached.
std::vector<layers::LayerCost> teacher_layers(const std::string& model,
                                              int64_t num_classes) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int64_t>,
                  std::vector<layers::LayerCost>>
      teachers;
  const std::lock_guard lock(mutex);
  const auto known = teachers.find({model, num_classes});
  if (known != teachers.end()) return known->second;
  layers::ModelTable table = layers::load_model_table(model);
  table.num_classes = static_cast<int>(num_classes);
  return teachers[{model, num_classes}] = layers::layer_costs(table);
}

}  // namespace

LabelBound label_bound(const configs::RunConfig& config) {
  LabelBound labels;
  if (config.synthetic_input) {
    labels.assumed_boxes_per_image = kSyntheticBoxesPerImage;
    return labels;
  }
  labels.assumed_boxes_per_image = kAssumedBoxesPerImage;
  auto statistics = parse_label_statistics(config.label_counts);
  if (!statistics) {
    throw Error("config",
                "label_counts is '" + config.label_counts +
                    "', which is no list of BOXESxIMAGES by rising boxes",
                "leave it out: it is read from the label files");
  }
  labels.statistics = std::move(*statistics);
  labels.repeats = config.image_weights;
  if (config.rect) return labels;
  labels.mosaic = config.hyp.mosaic;
  labels.mixup = config.hyp.mixup;
  if (config.hyp.mosaic9 > 0) labels.images_of_mosaic = 9;
  if (labels.statistics.outlines > 0) {
    labels.copy_paste = config.hyp.copy_paste;
  }
  return labels;
}

int64_t validation_batch_size(const configs::RunConfig& config) {
  if (config.synthetic_input) return 0;
  return std::min(config.global_batch_size, kMostValidationImages);
}

MemoryRequest memory_request(const configs::RunConfig& config,
                             const plan::Plan& plan,
                             const std::vector<layers::LayerCost>& layers) {
  const int64_t stride = layers::largest_stride(layers);
  MemoryRequest request;
  request.layers = layers;
  request.image_channels = layers.front().program->inputs.front().channels;
  request.sample_bytes = sample_bytes(!config.value_range.empty());
  request.num_classes = layers::num_classes(layers);
  if (!config.teacher_model.empty()) {
    request.teacher = teacher_layers(config.teacher_model, request.num_classes);
  }
  request.plan = plan;
  request.global_batch_size = config.global_batch_size;
  const configs::InputSize largest =
      configs::largest_input_size(config, stride);
  request.image_height = largest.height;
  request.image_width = largest.width;
  // Validation uses --img.
  request.validation_image_height =
      layers::rounded_image_size(config.image_height, stride);
  request.validation_image_width =
      layers::rounded_image_size(config.image_width, stride);
  request.element_bytes = config.precision == configs::Precision::kFp64 ? 8 : 4;
  const bool is_mixed = config.precision == configs::Precision::kBf16 ||
                        config.precision == configs::Precision::kFp16;
  request.map_bytes = is_mixed ? 2 : request.element_bytes;
  const bool on_cpu = !computes_on_cards(config.device);
  request.on_device = !on_cpu;
  request.captures_micro_batches = config.cuda_graphs;
  request.renders_samples = configs::augment_place(config).on_device;
  // Must equal the condition in worker/kernels/cpu/convolution.h.
  request.convolves_in_float =
      on_cpu && (config.precision == configs::Precision::kFp16 ||
                 (config.precision == configs::Precision::kBf16 &&
                  onednn_isa() == OnednnIsa::kAvx2));
  request.onednn_isa = onednn_isa();
  request.num_moments = configs::num_moments(config.optimizer);
  request.num_frozen_layers = config.freeze;
  request.resumes = !config.resume.empty();
  request.focal_loss = config.hyp.fl_gamma > 0;
  request.smooths_labels = config.label_smoothing > 0;
  request.num_threads = std::max<int64_t>(1, config.threads);
  request.labels = label_bound(config);
  request.num_images = request.labels.statistics.num_images();
  return request;
}

}  // namespace headroom::predict
