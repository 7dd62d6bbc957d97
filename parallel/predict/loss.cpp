#include "parallel/predict/loss.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"

namespace headroom::predict {
namespace {

// The derivative of a focal loss has this many more maps.
constexpr int64_t kFocalMaps = 5;
constexpr int64_t kMostMaps = 3;  // at once, where a loss's values are made
// Bytes of a match on a device: the places of its cell, its class and its last
// row; its box and anchor; in doubles the box's gradient, its overlap, and at
// most eight values and derivatives.
constexpr int64_t kPlacesOfMatch = 4;
constexpr int64_t kTargetFields = 6;
constexpr int64_t kDoublesOfMatch = 13;

struct Level {
  int64_t cells_bytes = 0;    // of the objectness map
  int64_t classes_bytes = 0;  // of the logits of matched cells
  int64_t head_bytes = 0;
  int64_t more_maps = 0;
};

// A map of values, made with others beside it, then summed from its copy in
// double; a device sums without one.
void touch_entropy_sum(const OpContext& context, int64_t bytes, int64_t maps) {
  if (context.extents.on_device) return context.timeline.touch(maps * bytes);
  const int64_t in_double =
      bytes / context.extents.element_bytes * kDoubleBytes;
  const bool is_double = context.extents.element_bytes == kDoubleBytes;
  context.timeline.touch(
      std::max(maps * bytes, bytes + (is_double ? 0 : in_double)));
}

// `gradient` is the head's, where forward has made it.
Graph::Outcome backward(MemoryTimeline& timeline, const Level& level,
                        Memory gradient) {
  Graph::Outcome outcome;
  if (gradient == nullptr) gradient = timeline.allocate(level.head_bytes);
  outcome.inputs = {{std::move(gradient), false}};
  timeline.touch((2 + level.more_maps) * level.cells_bytes);
  timeline.touch((2 + level.more_maps) * level.classes_bytes);
  return outcome;
}

// As level_loss, but a match's fields are picked out of the head at once, and
// everything that is worked out of labels comes along from the host.
void run_device_level(const OpContext& context, const Map& head,
                      int64_t matches, const Level& level,
                      const LossShape& shape) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t fields_bytes = matches * (kBoxFields + shape.num_classes) *
                               context.extents.element_bytes;
  const int64_t maps = shape.focal || shape.smooths_labels ? kMostMaps : 1;
  const Memory places =
      timeline.allocate(matches * kPlacesOfMatch * kIndexBytes);
  const Memory targets = timeline.allocate(matches * kTargetFields *
                                           context.extents.element_bytes);
  const Memory objectness = timeline.allocate(level.cells_bytes);
  const Memory fields = timeline.allocate(fields_bytes);
  const Memory doubles =
      timeline.allocate(matches * kDoublesOfMatch * kDoubleBytes);
  touch_entropy_sum(context, level.cells_bytes, shape.focal ? kMostMaps : 1);
  const Memory classes = timeline.allocate(level.classes_bytes);
  touch_entropy_sum(context, level.classes_bytes, maps);
  const auto backward = [&timeline, level, fields_bytes](Gradient) {
    Graph::Outcome outcome;
    outcome.inputs = {{timeline.allocate(level.head_bytes), false}};
    const Memory by_cells = timeline.allocate(level.cells_bytes);
    timeline.touch((1 + level.more_maps) * level.cells_bytes);
    const Memory rows = timeline.allocate(fields_bytes);
    timeline.touch((2 + level.more_maps) * level.classes_bytes);
    return outcome;
  };
  const int node = context.add({head}, {objectness, classes, places, doubles},
                               0, false, backward);
  if (node != Graph::kNobody) context.graph.at(node).is_root = true;
}

void run_level(const OpContext& context, const Map& head, int64_t matches,
               const LossShape& shape) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t element = context.extents.element_bytes;
  const int64_t anchors = head.channels / (kFirstClass + shape.num_classes);
  Level level;
  level.head_bytes = head.memory->bytes;
  level.cells_bytes = context.extents.map_bytes(anchors, head.stride);
  level.classes_bytes =
      shape.num_classes == 1 ? 0 : matches * shape.num_classes * element;
  level.more_maps = shape.focal ? kFocalMaps : 0;
  if (context.extents.on_device) {
    run_device_level(context, head, matches, level, shape);
    return;
  }

  const Memory objectness = timeline.allocate(level.cells_bytes);
  const Memory overlap = timeline.allocate(matches * kDoubleBytes);
  const Memory box_gradient = timeline.allocate(4 * matches * kDoubleBytes);
  touch_entropy_sum(context, level.cells_bytes, shape.focal ? kMostMaps : 1);
  const Memory targets = timeline.allocate(matches * kDoubleBytes);
  timeline.touch(level.cells_bytes / element * kDoubleBytes);
  const Memory classes = timeline.allocate(level.classes_bytes);
  // Label smoothing adds the other side's map.
  touch_entropy_sum(context, level.classes_bytes, kMostMaps);

  const auto made = std::make_shared<Memory>(
      shape.has_teacher ? timeline.allocate(level.head_bytes) : nullptr);
  const int node =
      context.add({head}, {objectness, classes, box_gradient, targets}, 0,
                  false, [&timeline, level, made](Gradient) {
                    return backward(timeline, level, std::move(*made));
                  });
  if (node != Graph::kNobody) context.graph.at(node).is_root = true;
}

}  // namespace

void run_loss(const OpContext& context, const std::vector<Map>& heads,
              const LossShape& shape) {
  HEADROOM_CHECK(heads.size() == shape.matches.size(),
                 std::to_string(shape.matches.size()) + " levels of matches");
  const MicroBatchShape wide = context.extents.widened();
  const OpContext of_heads = {
      wide,           context.timeline, context.graph,
      context.layer,  context.policy,   context.derive,
      context.replay, context.learns,   context.casts_weights};
  for (size_t level = 0; level < heads.size(); ++level)
    run_level(of_heads, heads[level], shape.matches[level], shape);
}

}  // namespace headroom::predict
