#include "worker/metrics/nms.h"

#include <ATen/Parallel.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/text.h"

namespace headroom::metrics {
namespace {

// On a device, rows are selected only if at most 1 / kMostPicked of them are
// wanted, because selecting needs memory there. Few rows are wanted once a
// network has learned a little.
constexpr int64_t kMostPicked = 8;

Corners to_corners(const float* row) {
  const float half_w = row[2] / 2, half_h = row[3] / 2;
  return {row[0] - half_w, row[1] - half_h, row[0] + half_w, row[1] + half_h};
}

bool is_wanted(int64_t class_index, const std::vector<int64_t>& classes) {
  return classes.empty() || std::find(classes.begin(), classes.end(),
                                      class_index) != classes.end();
}

// The candidates of one image in the order of the rows.
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

// REQUIRES: `candidates` in descending score.
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

// Rows of predictions on the host, image after image.
struct HostRows {
  at::Tensor fields;  // [rows, fields] float32
  // For each image its first row; at the end the number of rows.
  std::vector<int64_t> begins;
};

HostRows all_rows(const at::Tensor& decoded) {
  const int64_t num_rows = decoded.size(1);
  HostRows rows;
  rows.fields =
      decoded.to(at::kCPU, at::kFloat).contiguous().view({-1, decoded.size(2)});
  for (int64_t i = 0; i <= decoded.size(0); ++i) {
    rows.begins.push_back(i * num_rows);
  }
  return rows;
}

// Selects rows on the device. It computes the same products as the host, so the
// candidates are the same.
HostRows rows_above(const at::Tensor& decoded, float threshold) {
  const at::Tensor values = decoded.to(at::kFloat);
  // A contiguous copy of everything would double the memory.
  if (!values.is_contiguous()) return all_rows(values);
  const int64_t num_fields = values.size(2);
  const at::Tensor objectness = values.select(2, kObjectness);
  const at::Tensor places =
      values.narrow(2, kFirstClass, num_fields - kFirstClass)
          .amax(2)
          .mul_(objectness)
          .gt(threshold)
          .view({-1})
          .nonzero()
          .view({-1});
  if (places.numel() * kMostPicked > values.size(0) * values.size(1)) {
    return all_rows(values);
  }
  HostRows rows;
  rows.fields =
      values.view({-1, num_fields}).index_select(0, places).to(at::kCPU);
  const at::Tensor on_host = places.to(at::kCPU);
  const int64_t* const first = on_host.const_data_ptr<int64_t>();
  for (int64_t i = 0; i <= values.size(0); ++i) {
    rows.begins.push_back(
        std::lower_bound(first, first + on_host.numel(), i * values.size(1)) -
        first);
  }
  return rows;
}

}  // namespace

std::vector<std::vector<Detection>> non_maximum_suppression(
    const at::Tensor& decoded, const NmsOptions& options) {
  HEADROOM_CHECK(decoded.dim() == 3 && decoded.size(2) > kFirstClass,
                 "decoded predictions have 3 dimensions and a class");
  HEADROOM_CHECK(options.max_detections >= 0 && options.max_candidates >= 0,
                 cat("max_detections ", options.max_detections,
                     ", max_candidates ", options.max_candidates));
  const int64_t num_images = decoded.size(0), num_fields = decoded.size(2);
  const HostRows rows =
      decoded.is_cpu() || decoded.numel() == 0
          ? all_rows(decoded)
          : rows_above(decoded,
                       static_cast<float>(options.confidence_threshold));
  const float* data = rows.fields.const_data_ptr<float>();

  std::vector<std::vector<Detection>> images(static_cast<size_t>(num_images));
  at::parallel_for(0, num_images, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = rows.begins[static_cast<size_t>(i)];
      const int64_t last = rows.begins[static_cast<size_t>(i) + 1];
      auto candidates =
          collect(data + first * num_fields, last - first, num_fields, options);
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
