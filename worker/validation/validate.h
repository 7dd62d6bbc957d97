// validate: mean average precision over a split, spread over all ranks.
//
// Every replica of the model takes its share of the fixed list of batches and
// runs the network; the rank where the heads come together does non-maximum
// suppression and matching, and the per-image results are gathered: averages of
// averages would be wrong. No image is counted twice.
//
// Collective; the same result on every rank.
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
#include "worker/memory/memory_ladder.h"
#include "worker/metrics/detection.h"
#include "worker/model/layer_graph.h"
#include "worker/step/stage_forward.h"
#include "worker/validation/validation_figures.h"
#include "worker/weights/open_weights.h"

namespace headroom::validation {

struct ValidationOptions {
  double confidence_threshold = 0.001;
  double nms_iou_threshold = 0.6;
  int64_t max_detections = 300;
  loss::LossGains gains;
  std::vector<std::string> class_names;
  at::ScalarType scalar_type = at::kFloat;
  memory::MemoryRetry retry = {};  // retries of what follows the network
  // Curves and the counts of the confusion matrix.
  bool keeps_curves = false;
  // The samples whose detections and labels are kept, of the detections only
  // those above kConfusionConfidence; keeps_all keeps all of all samples.
  std::set<int64_t> pictured = {};
  bool keeps_all = false;
  // How often the network runs for a full batch, a micro-batch at a time: the
  // same on all ranks.
  int64_t passes_per_batch = 1;
  // Is told what goes through next; may be empty.
  std::function<void(const loader::Batch&)> before_part = {};
  // Is told how many images of this rank have gone through; may be empty.
  std::function<void(int64_t images)> images_done = {};
};

// The gains of the loss of `model` on images as `input` has them.
loss::LossGains loss_gains(const configs::RunConfig& config,
                           const model::LayerGraph& model,
                           const loader::LoaderOptions& input);

// What a configuration says of a validation: thresholds, beside the gains and
// the names of the classes.
ValidationOptions options_of(const configs::RunConfig& config,
                             const loss::LossGains& gains,
                             const std::vector<std::string>& class_names);

// What the network sees in the images of a batch: boxes in the source images'
// pixels, in descending confidence.
struct BatchDetections {
  std::vector<at::Tensor> heads;
  std::vector<std::vector<metrics::Detection>> images;
};
BatchDetections detect(const model::LayerGraph& model,
                       std::vector<at::Tensor> heads,
                       const loader::Batch& batch,
                       const ValidationOptions& options);

// `source` yields the share of the split (LoaderMode::kValidation) that this
// rank's replica takes, in the micro-batches that go through at once.
ValidationResult validate(step::StageForward& network,
                          loader::BatchSource& source,
                          collectives::Communicator& world,
                          const ValidationOptions& options);

// The heads of a batch's images.
using HeadsOf = std::function<std::vector<at::Tensor>(const loader::Batch&)>;

// The same by one process alone, of whatever makes the heads. `model` decodes
// them; `source` yields the whole split.
ValidationResult validate_heads(const model::LayerGraph& model,
                                const HeadsOf& heads_of,
                                loader::BatchSource& source,
                                const ValidationOptions& options);

// Mean average precision of a network on a data set's val split, by one
// process: what the commands that make smaller models print. The numbers are
// those of `headroom val` with the same images, size and batch. Errors: Error
// (exit 2, 4).

struct ImagesToScore {
  std::string data;                   // data.yaml
  std::string weights, cfg;           // the model whose classes are to be there
  int64_t height = 640, width = 640;  // rounded up to the model's stride
  int64_t batch = 16;
  // Is told of each image that has gone through, of so many; may be empty.
  std::function<void(int64_t images)> image_done = {};
};

// The configuration of `headroom val` on them.
configs::RunConfig val_config(const ImagesToScore& images);

// The heads are the model's own without `heads_of`.
ValidationResult score_network(model::LayerGraph& model,
                               const ImagesToScore& images,
                               HeadsOf heads_of = nullptr);

// "mAP50 0.8003, mAP 0.4391 on 87 images".
std::string describe(const ValidationResult& scores);

}  // namespace headroom::validation
