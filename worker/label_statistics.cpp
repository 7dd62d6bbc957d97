#include "worker/label_statistics.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "configs/data_config.h"
#include "parallel/plan/label_bound.h"
#include "worker/data/box_counts.h"

namespace headroom {

std::string label_statistics_json(const LabelStatisticsRequest& request) {
  IndexOptions options;
  options.single_cls = request.single_cls;
  options.num_threads = request.threads;
  const std::vector<int64_t> boxes =
      count_boxes(load_data_config(request.data), Split::kTrain, options);
  const LabelStatistics statistics = label_statistics(boxes);
  const nlohmann::ordered_json json = {
      {"images", boxes.size()},
      {"boxes", std::reduce(boxes.begin(), boxes.end(), int64_t{0})},
      {"most_boxes", statistics.most_boxes()},
      {"mean", statistics.mean()},
      {"variance", statistics.variance()},
      {"label_counts", to_text(statistics)}};
  return json.dump();
}

}  // namespace headroom
