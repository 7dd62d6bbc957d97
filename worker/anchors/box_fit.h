// Measures how well anchors match boxes, before a step is trained.
//
// An anchor matches a box if neither side differs by the factor hyp.anchor_t or
// more (../loss/target_assignment.h). The network learns nothing from a box
// that no anchor matches. x(box, anchor) is the minimum over both sides of
// min(side ratio, 1 / side ratio); it is 1 for equal shapes.
//   best possible recall     share of boxes whose best x is above 1 / threshold
//   anchors above threshold  mean over boxes of the number of anchors whose x
//                            is above 1 / threshold
//   fitness                  mean over boxes of the best x; a best x that is
//                            not above 1 / threshold counts as 0
// (YOLOv5's AutoAnchor.) Ratios are float32, sums float64. The number of
// threads changes no bit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/base/units.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/label_file.h"
#include "worker/data/labels/parallel_for.h"

namespace headroom::anchors {

struct BoxSize {
  float width = 0, height = 0;  // pixels of the network's input
  bool operator==(const BoxSize&) const = default;
};

// Whether a side is under 3 pixels. Such boxes can hardly be learned.
bool is_tiny(const BoxSize& box);

using Anchor = std::pair<double, double>;  // pixels (w, h)

// The size of a label's box in the network's input, after the image is scaled
// to fit it and then by `scale`.
BoxSize size_in_input(const labels::BoxLabel& label,
                      const codecs::ImageSize& image, int64_t input_height,
                      int64_t input_width, double scale);

struct AnchorFit {
  double best_possible_recall = 0;
  double anchors_above_threshold = 0;
  double fitness = 0;
};

// All zeros if there is no box. REQUIRES: threshold > 1.
AnchorFit fit_of(const std::vector<Anchor>& anchors,
                 const std::vector<BoxSize>& boxes, double threshold,
                 int64_t num_threads);

// Work over many boxes is divided into chunks of a fixed size. Sums are kept
// for each chunk and added in order, so that they have the same bits for any
// number of threads.
inline constexpr size_t kChunkSize = 4096;

inline int64_t num_chunks(size_t count) {
  return divided_up(static_cast<int64_t>(count),
                    static_cast<int64_t>(kChunkSize));
}

// Calls body(chunk, begin, end) from up to `num_threads` threads.
template <typename Body>
void for_each_chunk(size_t count, int64_t num_threads, const Body& body) {
  parallel_for(num_chunks(count), num_threads, [&](int64_t chunk) {
    const size_t begin = static_cast<size_t>(chunk) * kChunkSize;
    body(chunk, begin, std::min(begin + kChunkSize, count));
  });
}

}  // namespace headroom::anchors
