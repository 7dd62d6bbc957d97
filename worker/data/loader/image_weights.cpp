#include "worker/data/loader/image_weights.h"

#include <xxhash.h>

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::loader {

std::vector<double> class_weights(const std::vector<int64_t>& labels_per_class,
                                  const std::vector<double>& class_maps) {
  HEADROOM_CHECK(
      class_maps.empty() || class_maps.size() == labels_per_class.size(),
      cat(class_maps.size(), " mAPs for ", labels_per_class.size(),
          " classes"));
  std::vector<double> weights;
  double sum = 0;
  for (const int64_t labels : labels_per_class) {
    weights.push_back(1 / static_cast<double>(std::max<int64_t>(labels, 1)));
    sum += weights.back();
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const double missing = 1 - (class_maps.empty() ? 0 : class_maps[i]);
    weights[i] = weights[i] / sum * (missing * missing);
  }
  return weights;
}

std::vector<double> image_weights(const labels::Dataset& dataset,
                                  const std::vector<double>& class_maps) {
  std::vector<int64_t> labels_per_class(dataset.class_names().size(), 0);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    for (const labels::BoxLabel& label : dataset.labels(i)) {
      ++labels_per_class.at(static_cast<size_t>(label.class_index));
    }
  }
  const std::vector<double> of_class =
      class_weights(labels_per_class, class_maps);
  std::vector<double> weights(static_cast<size_t>(dataset.size()), 0);
  double sum = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    double& weight = weights[static_cast<size_t>(i)];
    for (const labels::BoxLabel& label : dataset.labels(i)) {
      weight += of_class[static_cast<size_t>(label.class_index)];
    }
    sum += weight;
  }
  if (sum > 0) return weights;
  throw Error("data",
              "--image-weights has no image left to draw: every class with "
              "labels has reached mAP 1",
              "train on without it: --weights of this run in a new one",
              ExitCode::kData);
}

int64_t images_without_labels(const labels::Dataset& dataset) {
  int64_t images = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    if (dataset.labels(i).empty()) ++images;
  }
  return images;
}

uint64_t digest_of(const std::vector<double>& numbers) {
  return XXH3_64bits(numbers.data(), numbers.size() * sizeof(double));
}

}  // namespace headroom::loader
