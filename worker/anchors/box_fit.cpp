#include "worker/anchors/box_fit.h"

#include <array>
#include <span>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::anchors {
namespace {

struct Sums {
  int64_t answered = 0, above = 0;
  double fitness = 0;
};

// The ratio of the smaller side to the larger one: 1 for equal sides.
float likeness(float a, float b) { return (a < b ? a : b) / (a < b ? b : a); }

// The inner loops run over boxes, so that the compiler can vectorise them.
// REQUIRES: at most kChunkSize boxes.
Sums sums_of(const std::vector<Anchor>& anchors, std::span<const BoxSize> boxes,
             float least) {
  std::array<float, kChunkSize> best{};
  Sums sums;
  for (const auto& [anchor_width, anchor_height] : anchors) {
    const auto width = static_cast<float>(anchor_width);
    const auto height = static_cast<float>(anchor_height);
    int32_t above = 0;
    for (size_t i = 0; i < boxes.size(); ++i) {
      const float by_width = likeness(boxes[i].width, width);
      const float by_height = likeness(boxes[i].height, height);
      const float x = by_width < by_height ? by_width : by_height;
      above += x > least;
      best[i] = best[i] < x ? x : best[i];
    }
    sums.above += above;
  }
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (best[i] <= least) continue;
    ++sums.answered;
    sums.fitness += best[i];
  }
  return sums;
}

}  // namespace

BoxSize size_in_input(const labels::BoxLabel& label,
                      const codecs::ImageSize& image, int64_t input_height,
                      int64_t input_width, double scale) {
  const double by_width = static_cast<double>(input_width) / image.width;
  const double by_height = static_cast<double>(input_height) / image.height;
  const double gain = std::min(by_width, by_height) * scale;
  return {static_cast<float>(label.w * (gain * image.width)),
          static_cast<float>(label.h * (gain * image.height))};
}

bool is_tiny(const BoxSize& box) {
  constexpr float kTinySide = 3;
  return std::min(box.width, box.height) < kTinySide;
}

AnchorFit fit_of(const std::vector<Anchor>& anchors,
                 const std::vector<BoxSize>& boxes, double threshold,
                 int64_t num_threads) {
  HEADROOM_CHECK(threshold > 1, cat("threshold ", threshold));
  const auto least = static_cast<float>(1 / threshold);
  std::vector<Sums> sums(static_cast<size_t>(num_chunks(boxes.size())));
  for_each_chunk(
      boxes.size(), num_threads, [&](int64_t chunk, size_t begin, size_t end) {
        sums[static_cast<size_t>(chunk)] =
            sums_of(anchors, {boxes.data() + begin, end - begin}, least);
      });
  AnchorFit fit;
  if (boxes.empty()) return fit;
  for (const Sums& sum : sums) {
    fit.best_possible_recall += static_cast<double>(sum.answered);
    fit.anchors_above_threshold += static_cast<double>(sum.above);
    fit.fitness += sum.fitness;
  }
  const auto count = static_cast<double>(boxes.size());
  fit.best_possible_recall /= count;
  fit.anchors_above_threshold /= count;
  fit.fitness /= count;
  return fit;
}

}  // namespace headroom::anchors
