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
// On a device, of a match: the places of its cell, its class and its last row;
// its box and anchor; in doubles the box's gradient, its overlap, and at most
// eight values and derivatives.
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
void touch_entropy_sum(const Pass& pass, int64_t bytes, int64_t maps) {
  if (pass.extents.on_device) return pass.tape.touch(maps * bytes);
  const int64_t in_double = bytes / pass.extents.element_bytes * kDoubleBytes;
  const bool is_double = pass.extents.element_bytes == kDoubleBytes;
  pass.tape.touch(std::max(maps * bytes, bytes + (is_double ? 0 : in_double)));
}

// `gradient`: of the head, where forward has made it.
Graph::Outcome backward(Tape& tape, const Level& level, Memory gradient) {
  Graph::Outcome outcome;
  if (gradient == nullptr) gradient = tape.allocate(level.head_bytes);
  outcome.inputs = {{std::move(gradient), false}};
  tape.touch((2 + level.more_maps) * level.cells_bytes);
  tape.touch((2 + level.more_maps) * level.classes_bytes);
  return outcome;
}

// As level_loss, but a match's fields are picked out of the head at once, and
// everything that is worked out of labels comes along from the host.
void run_device_level(const Pass& pass, const Map& head, int64_t matches,
                      const Level& level, const LossShape& shape) {
  Tape& tape = pass.tape;
  const int64_t fields_bytes =
      matches * (kBoxFields + shape.num_classes) * pass.extents.element_bytes;
  const int64_t maps = shape.focal || shape.smooths_labels ? kMostMaps : 1;
  const Memory places = tape.allocate(matches * kPlacesOfMatch * kIndexBytes);
  const Memory targets =
      tape.allocate(matches * kTargetFields * pass.extents.element_bytes);
  const Memory objectness = tape.allocate(level.cells_bytes);
  const Memory fields = tape.allocate(fields_bytes);
  const Memory doubles =
      tape.allocate(matches * kDoublesOfMatch * kDoubleBytes);
  touch_entropy_sum(pass, level.cells_bytes, shape.focal ? kMostMaps : 1);
  const Memory classes = tape.allocate(level.classes_bytes);
  touch_entropy_sum(pass, level.classes_bytes, maps);
  const auto backward = [&tape, level, fields_bytes](Gradient) {
    Graph::Outcome outcome;
    outcome.inputs = {{tape.allocate(level.head_bytes), false}};
    const Memory by_cells = tape.allocate(level.cells_bytes);
    tape.touch((1 + level.more_maps) * level.cells_bytes);
    const Memory rows = tape.allocate(fields_bytes);
    tape.touch((2 + level.more_maps) * level.classes_bytes);
    return outcome;
  };
  const int node = pass.add({head}, {objectness, classes, places, doubles}, 0,
                            false, backward);
  if (node != Graph::kNobody) pass.graph.at(node).is_root = true;
}

void run_level(const Pass& pass, const Map& head, int64_t matches,
               const LossShape& shape) {
  Tape& tape = pass.tape;
  const int64_t element = pass.extents.element_bytes;
  const int64_t anchors = head.channels / (kFirstClass + shape.num_classes);
  Level level;
  level.head_bytes = head.memory->bytes;
  level.cells_bytes = pass.extents.map_bytes(anchors, head.stride);
  level.classes_bytes =
      shape.num_classes == 1 ? 0 : matches * shape.num_classes * element;
  level.more_maps = shape.focal ? kFocalMaps : 0;
  if (pass.extents.on_device) {
    run_device_level(pass, head, matches, level, shape);
    return;
  }

  const Memory objectness = tape.allocate(level.cells_bytes);
  const Memory overlap = tape.allocate(matches * kDoubleBytes);
  const Memory box_gradient = tape.allocate(4 * matches * kDoubleBytes);
  touch_entropy_sum(pass, level.cells_bytes, shape.focal ? kMostMaps : 1);
  const Memory targets = tape.allocate(matches * kDoubleBytes);
  tape.touch(level.cells_bytes / element * kDoubleBytes);
  const Memory classes = tape.allocate(level.classes_bytes);
  // Label smoothing adds the other side's map.
  touch_entropy_sum(pass, level.classes_bytes, kMostMaps);

  const auto made = std::make_shared<Memory>(
      shape.has_teacher ? tape.allocate(level.head_bytes) : nullptr);
  const int node =
      pass.add({head}, {objectness, classes, box_gradient, targets}, 0, false,
               [&tape, level, made](Gradient) {
                 return backward(tape, level, std::move(*made));
               });
  if (node != Graph::kNobody) pass.graph.at(node).is_root = true;
}

}  // namespace

void run_loss(const Pass& pass, const std::vector<Map>& heads,
              const LossShape& shape) {
  HEADROOM_CHECK(heads.size() == shape.matches.size(),
                 std::to_string(shape.matches.size()) + " levels of matches");
  const Extents wide = pass.extents.widened();
  const Pass of_heads = {wide,        pass.tape,   pass.graph,
                         pass.row,    pass.policy, pass.derive,
                         pass.replay, pass.learns, pass.casts_weights};
  for (size_t level = 0; level < heads.size(); ++level)
    run_level(of_heads, heads[level], shape.matches[level], shape);
}

}  // namespace headroom::predict
