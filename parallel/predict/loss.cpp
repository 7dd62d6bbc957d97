#include "parallel/predict/loss.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/device_scratch.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/place_memory.h"
#include "parallel/base/text.h"

namespace headroom::predict {
namespace {

// A focal loss keeps this many more maps for its derivative.
constexpr int64_t kFocalMaps = 5;
// The most maps alive at once while loss values are computed.
constexpr int64_t kMostMaps = 3;
// Sizes of the device's loss buffers (worker/kernels/loss_call.h). A match has
// its cell and class, its box and anchor, and doubles computed from the box. A
// level has several parts, each padded to kLineBytes, and the sums of its
// thread blocks. All levels together have a few more numbers.
constexpr int64_t kPlacesOfMatch = 2, kPlaceBytes = 4;
constexpr int64_t kTargetFields = 6;
constexpr int64_t kDoublesOfMatch = 5;
constexpr int64_t kLineBytes = 16, kPartsOfLevel = 5;
constexpr int64_t kLossItems = 3, kNumbersOfAll = 6;
constexpr int64_t kBlocksOfLevel = 256;

struct Level {
  int64_t cells_bytes = 0;    // the objectness map
  int64_t classes_bytes = 0;  // the logits of matched cells
  int64_t head_bytes = 0;
  int64_t more_maps = 0;
};

// Computes `maps` maps at once, then sums one of them from a copy in double.
void touch_entropy_sum(const OpContext& context, int64_t bytes, int64_t maps) {
  const int64_t in_double = bytes / context.shape.element_bytes * kDoubleBytes;
  const bool is_double = context.shape.element_bytes == kDoubleBytes;
  context.buffers.touch(
      std::max(maps * bytes, bytes + (is_double ? 0 : in_double)));
}

// `gradient` is the head's gradient if forward has computed it.
Graph::Outcome backward(LiveBuffers& buffers, const Level& level,
                        Memory gradient) {
  Graph::Outcome outcome;
  if (gradient == nullptr) gradient = buffers.allocate(level.head_bytes);
  outcome.inputs = {{std::move(gradient), false}};
  buffers.touch((2 + level.more_maps) * level.cells_bytes);
  buffers.touch((2 + level.more_maps) * level.classes_bytes);
  return outcome;
}

// Computes all levels at once; the targets are prepared on the host. Backward
// allocates each head's gradient as a map of the inputs' shape `maps`
// (worker/model/detect.h).
void run_device_loss(const OpContext& context, const std::vector<Map>& heads,
                     const LossShape& shape, const MicroBatchShape& maps) {
  LiveBuffers& buffers = context.buffers;
  const int64_t element = context.shape.element_bytes;
  const auto num_levels = static_cast<int64_t>(heads.size());
  const int64_t item_bytes = num_levels * kLossItems * kDoubleBytes;
  std::vector<Memory> kept = {
      buffers.allocate(
          shape.has_targets ? 0 : packed_target_bytes(shape, context.shape)),
      buffers.allocate(item_bytes + kNumbersOfAll * kDoubleBytes)};
  for (size_t level = 0; level < heads.size(); ++level) {
    const Map& head = heads[level];
    const int64_t matches = shape.matches[level];
    const int64_t fields = kFirstClass + shape.num_classes;
    kept.push_back(buffers.allocate(
        context.shape.map_bytes(head.channels / fields, head.stride)));
    kept.push_back(buffers.allocate(
        shape.num_classes == 1 ? 0 : matches * shape.num_classes * element));
    kept.push_back(buffers.allocate(matches * kDoublesOfMatch * kDoubleBytes));
  }
  buffers.touch(kBlocksOfLevel * item_bytes);
  std::vector<int64_t> head_bytes;
  for (const Map& head : heads) {
    head_bytes.push_back(maps.map_bytes(
        maps.is_mixed() ? filled_channels(head.channels) : head.channels,
        head.stride));
  }
  const int node =
      context.add(heads, kept, 0, false, [&buffers, head_bytes](Gradient) {
        Graph::Outcome outcome;
        for (const int64_t bytes : head_bytes) {
          outcome.inputs.push_back({buffers.allocate(bytes), false});
        }
        return outcome;
      });
  if (node != Graph::kNobody) context.graph.at(node).is_root = true;
}

void run_level(const OpContext& context, const Map& head, int64_t matches,
               const LossShape& shape) {
  LiveBuffers& buffers = context.buffers;
  const int64_t element = context.shape.element_bytes;
  const int64_t anchors = head.channels / (kFirstClass + shape.num_classes);
  Level level;
  level.head_bytes = head.memory->bytes;
  level.cells_bytes = context.shape.map_bytes(anchors, head.stride);
  level.classes_bytes =
      shape.num_classes == 1 ? 0 : matches * shape.num_classes * element;
  level.more_maps = shape.focal ? kFocalMaps : 0;
  const Memory objectness = buffers.allocate(level.cells_bytes);
  const Memory overlap = buffers.allocate(matches * kDoubleBytes);
  const Memory box_gradient = buffers.allocate(4 * matches * kDoubleBytes);
  touch_entropy_sum(context, level.cells_bytes, shape.focal ? kMostMaps : 1);
  const Memory targets = buffers.allocate(matches * kDoubleBytes);
  buffers.touch(level.cells_bytes / element * kDoubleBytes);
  const Memory classes = buffers.allocate(level.classes_bytes);
  // Label smoothing needs one more map.
  touch_entropy_sum(context, level.classes_bytes, kMostMaps);

  const auto made = std::make_shared<Memory>(
      shape.has_teacher ? buffers.allocate(level.head_bytes) : nullptr);
  const int node =
      context.add({head}, {objectness, classes, box_gradient, targets}, 0,
                  false, [&buffers, level, made](Gradient) {
                    return backward(buffers, level, std::move(*made));
                  });
  if (node != Graph::kNobody) context.graph.at(node).is_root = true;
}

// Sums a map from a copy of its terms, and another in double.
void touch_place_sum(const OpContext& context, int64_t bytes) {
  const int64_t element = context.shape.element_bytes;
  const int64_t most = kPlaceSumElements * element;
  touch_entropy_sum(context, std::min(bytes, most), 1);
}

// The heads are all levels' distances, then all levels' classes. Forward makes
// the predicted boxes, and the list of owned places; backward allocates all
// gradients.
void run_place_loss(const OpContext& context, const std::vector<Map>& heads,
                    const LossShape& shape) {
  LiveBuffers& buffers = context.buffers;
  const size_t levels = heads.size() / 2;
  const int64_t taken = shape.boxes * kPlacesPerLabel;
  const int64_t exchanged = shape.ranks_of_image == 1
                                ? 0
                                : (1 + shape.ranks_of_image) * taken *
                                      kNumbersPerTakenPlace * kDoubleBytes;
  std::vector<Memory> kept;
  {
    int64_t box_bytes = 0;
    for (size_t level = 0; level < levels; ++level) {
      box_bytes += context.shape.map_bytes(kBoxSides, heads[level].stride);
    }
    const Memory boxes = buffers.allocate(box_bytes);
    buffers.touch(exchanged);
    kept.push_back(buffers.allocate(taken * kPlaceTargetBytes));
  }
  std::vector<int64_t> head_bytes;
  for (const Map& head : heads) {
    kept.push_back(head.memory);
    head_bytes.push_back(head.memory->bytes);
  }
  for (size_t level = levels; level < heads.size(); ++level) {
    touch_place_sum(context, head_bytes[level]);
  }
  const int node =
      context.add(heads, kept, 0, false, [&buffers, head_bytes](Gradient) {
        Graph::Outcome outcome;
        for (const int64_t bytes : head_bytes) {
          outcome.inputs.push_back({buffers.allocate(bytes), false});
        }
        return outcome;
      });
  if (node != Graph::kNobody) context.graph.at(node).is_root = true;
}

// Computes all levels and the assignment at once; the labels are packed on the
// host. Backward allocates each gradient as a map of the inputs' shape `maps`
// (worker/loss/device_place_loss.h).
void run_device_place_loss(const OpContext& context,
                           const std::vector<Map>& heads,
                           const LossShape& shape,
                           const MicroBatchShape& maps) {
  LiveBuffers& buffers = context.buffers;
  const size_t levels = heads.size() / 2;
  int64_t places = 0;
  for (size_t level = 0; level < levels; ++level) {
    places += context.shape.cells(heads[level].stride);
  }
  const auto doubles = [&buffers](int64_t count) {
    return buffers.allocate(count * kDoubleBytes);
  };
  std::vector<Memory> kept = {
      buffers.allocate(
          shape.has_targets ? 0 : packed_target_bytes(shape, context.shape)),
      // Distances, owners and alignments of all places.
      buffers.allocate(places * (kBoxSides + 1) * context.shape.element_bytes),
      doubles(places)};
  for (const Map& head : heads) kept.push_back(head.memory);
  {
    const int64_t taken = shape.boxes * kPlacesPerLabel * kNumbersPerTakenPlace;
    const int64_t maxima = shape.boxes * kNumbersOfMaxima;
    const bool exchanges = shape.ranks_of_image > 1;
    const int64_t parts = exchanges ? shape.ranks_of_image : 0;
    // A gathered tensor is copied once more.
    const Memory partial = doubles(static_cast<int64_t>(levels) *
                                   kPlaceBlocksOfLevel * kPlaceSums);
    const Memory lists = doubles(taken * (1 + parts));
    buffers.touch(taken * parts * kDoubleBytes);
    kept.push_back(doubles(maxima * std::max<int64_t>(parts, 1)));
    buffers.touch(maxima * (1 + parts) * kDoubleBytes);
  }
  kept.push_back(doubles(kPlaceSums + kNumbersOfAll));
  std::vector<int64_t> head_bytes;
  for (const Map& head : heads) {
    head_bytes.push_back(maps.map_bytes(
        maps.is_mixed() ? filled_channels(head.channels) : head.channels,
        head.stride));
  }
  const int node =
      context.add(heads, kept, 0, false, [&buffers, head_bytes](Gradient) {
        Graph::Outcome outcome;
        for (const int64_t bytes : head_bytes) {
          outcome.inputs.push_back({buffers.allocate(bytes), false});
        }
        return outcome;
      });
  if (node != Graph::kNobody) context.graph.at(node).is_root = true;
}

// The labels of a micro-batch (worker/kernels/place_loss_call.h).
int64_t packed_label_bytes(const LossShape& shape,
                           const MicroBatchShape& maps) {
  const auto line = [](int64_t bytes) { return round_up(bytes, kLineBytes); };
  return kLineBytes + line((maps.samples + 1) * kPlaceBytes) +
         2 * line(shape.boxes * kPlaceBytes) +
         line(shape.boxes * kBoxSides * maps.parameter_bytes());
}

}  // namespace

int64_t packed_target_bytes(const LossShape& shape,
                            const MicroBatchShape& maps) {
  if (!shape.has_anchors) return packed_label_bytes(shape, maps);
  const int64_t element_bytes = maps.parameter_bytes();
  int64_t bytes = 0;
  for (const int64_t matches : shape.matches) {
    bytes += kPartsOfLevel * kLineBytes +
             matches *
                 (kPlacesOfMatch * kPlaceBytes + kTargetFields * element_bytes);
  }
  return bytes;
}

void run_loss(const OpContext& context, const std::vector<Map>& heads,
              const LossShape& shape) {
  const MicroBatchShape wide = context.shape.widened();
  const OpContext of_heads = {
      wide,           context.buffers, context.graph,
      context.layer,  context.policy,  context.derive,
      context.replay, context.learns,  context.casts_weights};
  if (!shape.has_anchors && context.shape.on_device) {
    return run_device_place_loss(of_heads, heads, shape, context.shape);
  }
  if (!shape.has_anchors) return run_place_loss(of_heads, heads, shape);
  HEADROOM_CHECK(heads.size() == shape.matches.size(),
                 cat(shape.matches.size(), " levels of matches"));
  if (context.shape.on_device) {
    return run_device_loss(of_heads, heads, shape, context.shape);
  }
  for (size_t level = 0; level < heads.size(); ++level)
    run_level(of_heads, heads[level], shape.matches[level], shape);
}

}  // namespace headroom::predict
