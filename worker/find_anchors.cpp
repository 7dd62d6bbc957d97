#include "worker/find_anchors.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "configs/data_config.h"
#include "configs/model_table.h"
#include "configs/model_table_text.h"
#include "configs/row_cost.h"
#include "configs/scalar.h"
#include "parallel/base/check.h"
#include "worker/anchors/anchor_choice.h"
#include "worker/data/dataset.h"
#include "worker/data/random.h"
#include "worker/model/weights_anchors.h"
#include "worker/model/weights_file.h"

namespace headroom {
namespace {

// As training varies the size of an image.
constexpr double kLeastScale = 0.9, kLargestScale = 1.1;
constexpr uint64_t kScaleEpoch = 1;  // 0 is the search's

void check_number(const FindAnchorsRequest& request, const ModelTable& table) {
  if (request.per_level == 0) return;
  const auto has = static_cast<int64_t>(table.anchors.front().size());
  if (std::llround(request.per_level) == has) return;
  throw Error("config",
              "hyp.anchors is " + exact_text(request.per_level) + ", but " +
                  table.name + " has " + std::to_string(has) +
                  " anchors per level and keeps that number",
              "use --set hyp.anchors=" + std::to_string(has) +
                  ", or a --cfg with another number");
}

AnchorList anchors_of(const FindAnchorsRequest& request,
                      const ModelTable& table) {
  if (request.weights.empty()) return table.anchors;
  return anchors_in_weights(request.weights, table).value_or(table.anchors);
}

void add_boxes(const FindAnchorsRequest& request, const ModelTable& table,
               AnchorQuestion& question) {
  IndexOptions options;
  options.single_cls = request.single_cls;
  options.num_threads = request.threads;
  const Dataset dataset =
      index_dataset(load_data_config(request.data), Split::kTrain, options)
          .dataset;
  const int64_t stride = largest_stride(row_costs(table));
  const int64_t height = rounded_image_size(request.image_height, stride);
  const int64_t width = rounded_image_size(request.image_width, stride);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    RandomStream random(request.seed, kScaleEpoch, static_cast<uint64_t>(i),
                        RandomPurpose::kAnchors);
    const double scale = random.uniform(kLeastScale, kLargestScale);
    for (const BoxLabel& label : dataset.labels(i)) {
      const ImageSize image = dataset.image_size(i);
      question.boxes.push_back(size_in_input(label, image, height, width, 1));
      question.varied.push_back(
          size_in_input(label, image, height, width, scale));
    }
  }
}

}  // namespace

std::string find_anchors_json(const FindAnchorsRequest& request) {
  // Weights may be of a model that has no name to be found by.
  const ModelTable table =
      request.weights.empty()
          ? load_model_table(request.model)
          : table_of_weights(read_weights_metadata(request.weights),
                             request.weights);
  check_number(request, table);
  AnchorQuestion question;
  question.current = anchors_of(request, table);
  question.threshold = request.threshold;
  question.must_find = request.per_level > 0;
  question.seed = request.seed;
  question.num_threads = request.threads;
  AnchorChoice choice;
  if (request.keep) {
    choice.anchors = question.current;
    choice.reason = "not judged, those of " +
                    (request.weights.empty() ? table.name : request.weights);
  } else {
    add_boxes(request, table, question);
    choice = choose_anchors(question);
  }
  // Those of a model file need not be said.
  const bool is_own = request.weights.empty() && !choice.found;
  return nlohmann::json{{"anchors", is_own ? "" : to_text(choice.anchors)},
                        {"anchors_reason", choice.reason}}
      .dump();
}

}  // namespace headroom
