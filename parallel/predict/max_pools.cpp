#include "parallel/predict/operators.h"

#include <utility>

#include "parallel/base/device_scratch.h"

namespace headroom::predict {
namespace {

// A concatenation without a derivation, because the whole chain is recomputed.
Map side_by_side(OpContext context, const std::vector<Map>& maps) {
  context.derive = Derive::kNothing;
  layers::MapShape output = {0, maps.front().stride};
  for (const Map& map : maps) output.channels += map.channels;
  return derived_map(context, maps, output,
                     layers::LayerProgram::InputGradients::kSlices);
}

// Adds the node of a pooling from x to `out`, with a gradient of `bytes` and
// its saved indices (worker/model/max_pool.h).
int pooled_from(const OpContext& context, const Map& x, int64_t bytes,
                const Map& out, int64_t window) {
  LiveBuffers& buffers = context.buffers;
  const int64_t elements = out.memory->bytes / context.shape.element_bytes;
  if (!context.shape.on_device || !chooses_in_bytes(window)) {
    const Memory indices = buffers.allocate(elements * kIndexBytes);
    return context.add({x}, {x.memory, indices}, out.memory->bytes, false,
                       making_new(buffers, {bytes}, out.memory->bytes));
  }
  if (!context.is_recorded({x}, false)) return Graph::kNobody;
  // The output's gradient may be a view: it is not copied.
  return context.add({x}, {buffers.allocate(elements)}, out.memory->bytes,
                     false, making_new(buffers, {bytes}, 0));
}

Map pool(const OpContext& context, const Map& x, int64_t window) {
  Map out = {context.allocate_map(x.channels, x.stride), x.channels, x.stride};
  out.node = pooled_from(context, x, context.bytes_of(x), out, window);
  return out;
}

// The pooling chain on one rank's rows of a split image. Its maps are padded
// with rows of the neighbours.
class SplitPools {
 public:
  SplitPools(const OpContext& context, const Map& y,
             const std::vector<int64_t>& windows)
      : pass_(context), y_(y), windows_(windows) {
    for (const int64_t window : windows) around_ += window - 1;
  }

  Map run() {
    std::vector<Map> maps = {y_};
    Map wide = widened();
    for (const int64_t window : windows_) {
      around_ -= window - 1;
      wide = without_rows_beyond_edge(pooled(wide, window));
      maps.push_back({wide.memory, y_.channels, y_.stride, own_rows(wide)});
    }
    return side_by_side(pass_, maps);
  }

 private:
  int64_t wide_bytes() const {
    return pass_.bytes_of(y_) +
           pass_.shape.rows_bytes(around_, y_.channels, y_.stride);
  }
  // Fetches the neighbours' rows and joins them, as one operation.
  Map widened() {
    const Memory halo = fetch_halo(pass_, y_, around_);
    Map wide = {join_halo(pass_, y_, around_), y_.channels, y_.stride};
    wide.node = pass_.add(
        {y_}, {}, wide.memory->bytes, false,
        [later = pass_.in_backward(), plain = y_.without_memory(),
         around = around_](Gradient given) {
          Graph::Outcome outcome;
          outcome.inputs = {{give_back_halo(later, plain, around), false}};
          static_cast<void>(given);
          return outcome;
        });
    return wide;
  }
  Map pooled(const Map& x, int64_t window) {
    Map out = {pass_.buffers.allocate(wide_bytes()), y_.channels, y_.stride};
    out.node = pooled_from(pass_, x, x.memory->bytes, out, window);
    return out;
  }
  // Copies the map and fills the rows outside the image with minus infinity,
  // because no pooling may choose them. Makes no copy if the map has only the
  // rank's own rows.
  Map without_rows_beyond_edge(const Map& wide) {
    if (around_ == 0) return wide;
    Map out = {pass_.buffers.allocate(wide_bytes()), y_.channels, y_.stride};
    out.node =
        pass_.add({wide}, {}, wide_bytes(), false,
                  making_new(pass_.buffers, {wide_bytes()}, wide_bytes()));
    return out;
  }
  // A view of the rank's own rows of a padded map. Its gradient is as large as
  // the padded map.
  int own_rows(const Map& wide) {
    return pass_.add({wide}, {}, pass_.bytes_of(y_), false,
                     making_new(pass_.buffers, {wide_bytes()}, 0));
  }

  const OpContext& pass_;
  const Map& y_;
  const std::vector<int64_t>& windows_;
  int64_t around_ = 0;  // rows above and below together
};

}  // namespace

Map chained_pools(const OpContext& context, const Map& y,
                  const std::vector<int64_t>& windows) {
  if (context.shape.is_split()) return SplitPools(context, y, windows).run();
  std::vector<Map> maps = {y};
  for (const int64_t window : windows)
    maps.push_back(pool(context, maps.back(), window));
  return side_by_side(context, maps);
}

}  // namespace headroom::predict
