#include "worker/metrics/nms.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"

namespace headroom::metrics {
namespace {

Corners to_corners(const float* row) {
  const float half_w = row[2] / 2, half_h = row[3] / 2;
  return {row[0] - half_w, row[1] - half_h, row[0] + half_w, row[1] + half_h};
}

bool is_wanted(int64_t class_index, const std::vector<int64_t>& classes) {
  return classes.empty() || std::find(classes.begin(), classes.end(),
                                      class_index) != classes.end();
}

// Candidates of one image in the order of the rows.
std::vector<Detection> collect(const float* rows, int64_t num_rows,
                               int64_t num_fields, const NmsOptions& options) {
  const float threshold = static_cast<float>(options.confidence_threshold);
  const int64_t num_classes = num_fields - kFirstClass;
  std::vector<Detection> candidates;
  const auto add = [&](const float* row, int64_t class_index, float score) {
    if (is_wanted(class_index, options.classes))
      candidates.push_back(
          {to_corners(row), score, static_cast<int32_t>(class_index)});
  };
  for (int64_t r = 0; r < num_rows; ++r) {
    const float* row = rows + r * num_fields;
    const float objectness = row[kObjectness];
    if (!(objectness > threshold)) continue;
    const float* scores = row + kFirstClass;
    if (options.multi_label && num_classes > 1) {
      for (int64_t c = 0; c < num_classes; ++c)
        if (objectness * scores[c] > threshold)
          add(row, c, objectness * scores[c]);
      continue;
    }
    int64_t best = 0;
    for (int64_t c = 1; c < num_classes; ++c)
      if (objectness * scores[c] > objectness * scores[best]) best = c;
    if (objectness * scores[best] > threshold)
      add(row, best, objectness * scores[best]);
  }
  return candidates;
}

// `candidates` are in descending score.
std::vector<Detection> suppress(const std::vector<Detection>& candidates,
                                int64_t num_classes,
                                const NmsOptions& options) {
  std::vector<Detection> kept;
  std::vector<std::vector<Corners>> kept_by_group(
      static_cast<size_t>(options.agnostic ? 1 : num_classes));
  for (const Detection& candidate : candidates) {
    if (static_cast<int64_t>(kept.size()) >= options.max_detections) break;
    auto& group = kept_by_group[static_cast<size_t>(
        options.agnostic ? 0 : candidate.class_index)];
    const bool is_suppressed =
        std::any_of(group.begin(), group.end(), [&](const Corners& other) {
          return corner_iou(other, candidate.box, 0) > options.iou_threshold;
        });
    if (is_suppressed) continue;
    group.push_back(candidate.box);
    kept.push_back(candidate);
  }
  return kept;
}

}  // namespace

std::vector<std::vector<Detection>> non_maximum_suppression(
    const at::Tensor& decoded, const NmsOptions& options) {
  HEADROOM_CHECK(decoded.dim() == 3 && decoded.size(2) > kFirstClass,
                 "decoded predictions have 3 dimensions and a class");
  HEADROOM_CHECK(options.max_detections >= 0 && options.max_candidates >= 0,
                 "max_detections " + std::to_string(options.max_detections) +
                     ", max_candidates " +
                     std::to_string(options.max_candidates));
  const at::Tensor rows = decoded.to(at::kCPU, at::kFloat).contiguous();
  const int64_t num_rows = rows.size(1), num_fields = rows.size(2);
  const float* data = rows.const_data_ptr<float>();

  std::vector<std::vector<Detection>> images(static_cast<size_t>(rows.size(0)));
  at::parallel_for(0, rows.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto candidates = collect(data + i * num_rows * num_fields, num_rows,
                                num_fields, options);
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const Detection& a, const Detection& b) {
                         return a.confidence > b.confidence;
                       });
      if (static_cast<int64_t>(candidates.size()) > options.max_candidates)
        candidates.resize(static_cast<size_t>(options.max_candidates));
      images[static_cast<size_t>(i)] =
          suppress(candidates, num_fields - kFirstClass, options);
    }
  });
  return images;
}

}  // namespace headroom::metrics
