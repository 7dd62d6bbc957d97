#include "parallel/predict/resampling.h"

#include <utility>

#include "parallel/predict/halo.h"

namespace headroom::predict {
namespace {

// What makes it again allocates the same.
void note(const OpContext& context, const Map& out,
          const std::vector<Map>& from) {
  if (context.derive == Derive::kNothing) return;
  std::vector<Memory> sources;
  for (const Map& map : from) sources.push_back(map.memory);
  set_derivation(
      out.memory, sources,
      [&timeline = context.timeline, bytes = out.memory->bytes](
          const std::vector<Memory>&) { return timeline.allocate(bytes); });
}

// Slices of the one gradient.
Graph::Outcome hand_out(size_t num_inputs, Gradient gradient, bool as_slices) {
  Graph::Outcome outcome;
  for (size_t i = 0; i < num_inputs; ++i) {
    outcome.inputs.push_back({gradient.memory, as_slices || gradient.is_slice});
  }
  return outcome;
}

Map concatenation(const OpContext& context, const std::vector<Map>& maps) {
  Map out = {nullptr, 0, maps.front().stride};
  for (const Map& map : maps) out.channels += map.channels;
  out.memory = context.allocate_map(out.channels, out.stride);
  out.node = context.add(maps, {}, out.memory->bytes, false,
                         [count = maps.size()](Gradient g) {
                           return hand_out(count, std::move(g), true);
                         });
  return out;
}

// The gradient of an input of `bytes`, of a map whose gradient must be dense.
Graph::Backward resample_backward(MemoryTimeline& timeline, int64_t bytes,
                                  int64_t output_bytes) {
  return [&timeline, bytes, output_bytes](Gradient gradient) {
    const Memory copy =
        gradient.is_slice ? timeline.allocate(output_bytes) : nullptr;
    Graph::Outcome outcome;
    outcome.inputs = {{timeline.allocate(bytes), false}};
    return outcome;
  };
}

Map pool(const OpContext& context, const Map& x) {
  Map out = {context.allocate_map(x.channels, x.stride), x.channels, x.stride};
  const Memory indices = context.timeline.allocate(
      out.memory->bytes / context.extents.element_bytes * kIndexBytes);
  out.node =
      context.add({x}, {x.memory, indices}, out.memory->bytes, false,
                  resample_backward(context.timeline, context.bytes_of(x),
                                    out.memory->bytes));
  return out;
}

// The same on a rank's rows, of maps wider than they.
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
      wide = without_rows_beyond_edge(pooled(wide));
      maps.push_back({wide.memory, y_.channels, y_.stride, own_rows(wide)});
    }
    return concatenation(pass_, maps);
  }

 private:
  int64_t wide_bytes() const {
    return pass_.bytes_of(y_) +
           pass_.extents.rows_bytes(around_, y_.channels, y_.stride);
  }
  // Fetch and join as one operation.
  Map widened() {
    const Memory halo = fetch_halo(pass_, y_, around_);
    Map wide = {join_halo(pass_, y_, around_), y_.channels, y_.stride};
    OpContext later = pass_;
    later.replay = nullptr;
    Map plain = y_;
    plain.memory = nullptr;
    wide.node = pass_.add(
        {y_}, {}, wide.memory->bytes, false,
        [later, plain, around = around_](Gradient given) {
          Graph::Outcome outcome;
          outcome.inputs = {{give_back_halo(later, plain, around), false}};
          static_cast<void>(given);
          return outcome;
        });
    return wide;
  }
  Map pooled(const Map& x) {
    Map out = {pass_.timeline.allocate(wide_bytes()), y_.channels, y_.stride};
    const Memory indices = pass_.timeline.allocate(
        wide_bytes() / pass_.extents.element_bytes * kIndexBytes);
    out.node = pass_.add(
        {x}, {x.memory, indices}, wide_bytes(), false,
        resample_backward(pass_.timeline, x.memory->bytes, wide_bytes()));
    return out;
  }
  // A copy with lowest values beyond the image's edge, as long as rows are
  // left around the rank's own.
  Map without_rows_beyond_edge(const Map& wide) {
    if (around_ == 0) return wide;
    Map out = {pass_.timeline.allocate(wide_bytes()), y_.channels, y_.stride};
    out.node = pass_.add(
        {wide}, {}, wide_bytes(), false,
        resample_backward(pass_.timeline, wide_bytes(), wide_bytes()));
    return out;
  }
  // The rank's own rows of a map that may be wider: a window, whose gradient is
  // as wide.
  int own_rows(const Map& wide) {
    return pass_.add({wide}, {}, pass_.bytes_of(y_), false,
                     resample_backward(pass_.timeline, wide_bytes(), 0));
  }

  const OpContext& pass_;
  const Map& y_;
  const std::vector<int64_t>& windows_;
  int64_t around_ = 0;  // rows above and below together
};

}  // namespace

Map add(const OpContext& context, const Map& a, const Map& b) {
  Map out = {context.allocate_map(a.channels, a.stride), a.channels, a.stride};
  note(context, out, {a, b});
  out.node = context.add({a, b}, {}, out.memory->bytes, false, [](Gradient g) {
    return hand_out(2, std::move(g), false);
  });
  return out;
}

Map concatenate(const OpContext& context, const std::vector<Map>& maps) {
  Map out = concatenation(context, maps);
  note(context, out, maps);
  return out;
}

Map upsample(const OpContext& context, const Map& x) {
  Map out = {context.allocate_map(x.channels, x.stride / 2), x.channels,
             x.stride / 2};
  note(context, out, {x});
  out.node =
      context.add({x}, {}, out.memory->bytes, false,
                  resample_backward(context.timeline, context.bytes_of(x),
                                    out.memory->bytes));
  return out;
}

Map rearrange(const OpContext& context, const Map& x,
              const layers::MapShape& output) {
  Map out = {context.allocate_map(output.channels, output.stride),
             output.channels, output.stride};
  note(context, out, {x});
  out.node =
      context.add({x}, {}, out.memory->bytes, false,
                  resample_backward(context.timeline, context.bytes_of(x),
                                    out.memory->bytes));
  return out;
}

Map slice(const OpContext& context, const Map& x, int64_t channels) {
  Map out = {context.allocate_map(channels, x.stride), channels, x.stride};
  note(context, out, {x});
  out.node =
      context.add({x}, {}, out.memory->bytes, false,
                  resample_backward(context.timeline, context.bytes_of(x), 0));
  return out;
}

Map chained_pools(const OpContext& context, const Map& y,
                  const std::vector<int64_t>& windows) {
  if (context.extents.is_split()) return SplitPools(context, y, windows).run();
  std::vector<Map> maps = {y};
  for (size_t i = 0; i < windows.size(); ++i)
    maps.push_back(pool(context, maps.back()));
  return concatenation(context, maps);
}

}  // namespace headroom::predict
