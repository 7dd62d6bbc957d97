// validate: computes mean average precision over a split, on all ranks.
//
// Every replica of the model runs the network on its share of a fixed list of
// batches. The rank that has the network's output does non-maximum suppression
// and matching. Rank 0 gathers the results of single images, because an average
// of averages would be wrong, class by class in bounded memory
// (class_records.h). No image is counted twice.
//
// Collective; the figures are equal on every rank. Only rank 0 has the data for
// pictures and files, and the faults.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/collectives/communicator.h"
#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"
#include "worker/loss/detection_loss.h"
#include "worker/loss/place_loss.h"
#include "worker/memory/memory_ladder.h"
#include "worker/metrics/detection.h"
#include "worker/metrics/nms.h"
#include "worker/model/layer_graph.h"
#include "worker/step/stage_forward.h"
#include "worker/validation/validation_figures.h"
#include "worker/weights/open_weights.h"

namespace headroom::validation {

struct ValidationOptions {
  // A higher threshold is faster, but lowers mAP, which also counts detections
  // of low confidence.
  double confidence_threshold = 0.001;
  double nms_iou_threshold = metrics::kIouOfHead;
  bool clip_boxes = true;
  int64_t max_detections = 300;
  loss::LossGains gains;
  loss::PlaceGains place_gains = {};  // of a head without anchors
  std::vector<std::string> class_names;
  at::ScalarType scalar_type = at::kFloat;
  memory::MemoryRetry retry = {};  // retries the work that follows the network
  // Keep the curves and the counts of the confusion matrix.
  bool keeps_curves = false;
  // The samples whose labels, and detections above kConfusionConfidence, are
  // kept. With keeps_all, all labels and detections of all samples are kept.
  std::set<int64_t> pictured = {};
  bool keeps_all = false;
  // How often the network runs for a full batch: the number of micro-batches.
  // Must be equal on all ranks.
  int64_t passes_per_batch = 1;
  // Called before the network runs on each part of a batch; may be empty.
  std::function<void(const loader::Batch&)> before_part = {};
  // The network runs on the CPU, so each part of a batch takes a turn on the
  // cores.
  bool takes_core_turns = false;
  // Called with the number of images that this rank has validated so far; may
  // be empty.
  std::function<void(int64_t images)> images_done = {};
};

// The loss gains of heads without anchors.
loss::PlaceGains place_gains(const configs::Hyperparameters& hyp);

// The loss gains of `model` for images of the size that `input` has.
// `class_weights`: step::RunData's.
loss::LossGains loss_gains(const configs::RunConfig& config,
                           const model::LayerGraph& model,
                           const loader::LoaderOptions& input,
                           const std::vector<double>& class_weights);

// The options that a configuration sets for a validation: its thresholds, with
// the gains and the class names.
ValidationOptions options_of(const configs::RunConfig& config,
                             const loss::LossGains& gains,
                             const std::vector<std::string>& class_names);

// The IoU threshold of a validation whose network has such a head.
double nms_iou_threshold(const ValidationOptions& options, bool has_anchors);

// The detections of a batch's images: boxes in pixels of the source images, in
// descending confidence.
struct BatchDetections {
  std::vector<at::Tensor> heads;
  std::vector<std::vector<metrics::Detection>> images;
};
BatchDetections detect(const model::LayerGraph& model,
                       std::vector<at::Tensor> heads,
                       const loader::Batch& batch,
                       const ValidationOptions& options);

// Validates `network` on this rank's share of the split, which `source` yields
// (LoaderMode::kValidation). The network runs on one micro-batch at a time.
ValidationResult validate(step::StageForward& network,
                          loader::BatchSource& source,
                          collectives::Communicator& world,
                          const ValidationOptions& options);

// Computes the heads of a batch's images.
using HeadsOf = std::function<std::vector<at::Tensor>(const loader::Batch&)>;

// validate() in one process, for heads computed by any function. `model`
// decodes them; `source` yields the whole split.
ValidationResult validate_heads(const model::LayerGraph& model,
                                const HeadsOf& heads_of,
                                loader::BatchSource& source,
                                const ValidationOptions& options);

// Mean average precision of a network on a data set's val split, in one
// process, for the commands that make smaller models. The numbers equal those
// of `headroom val` with the same images, size and batch. Errors: Error (exit
// 2, 4).

struct ImagesToScore {
  std::string data;          // data.yaml
  std::string weights, cfg;  // the model, whose classes the data must have
  int64_t height = 640, width = 640;  // rounded up to the model's stride
  int64_t batch = 16;                 // larger is faster, but needs more memory
  // Called for each finished image with the number of all images; may be empty.
  std::function<void(int64_t images)> image_done = {};
};

// The configuration of `headroom val` for these images.
configs::RunConfig val_config(const ImagesToScore& images);

// Scores the heads that `heads_of` computes. If `heads_of` is empty, scores the
// model's own heads.
ValidationResult score_network(model::LayerGraph& model,
                               const ImagesToScore& images,
                               HeadsOf heads_of = nullptr);

// "mAP50 0.8003, mAP 0.4391 on 87 images".
std::string describe(const ValidationResult& scores);

}  // namespace headroom::validation
