#include "worker/model/resampling.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/upsample_nearest2d.h>

#include <algorithm>
#include <limits>

#include "parallel/base/layer_exchange.h"
#include "worker/model/derived_maps.h"
#include "worker/model/halo_rows.h"
#include "worker/model/max_pool.h"

namespace headroom::model {
namespace {

// Concatenates in the view [N, H, W, C]: each cell of a map is one contiguous
// block, and the result is channels-last for all sizes. Concatenating along
// dimension 1 would take up to 1.6 times as long.
at::Tensor concatenate(const std::vector<at::Tensor>& maps) {
  std::vector<at::Tensor> cells;
  for (const at::Tensor& map : maps) cells.push_back(map.permute({0, 2, 3, 1}));
  return at::cat(cells, 3).permute({0, 3, 1, 2});
}

constexpr double kBelowEverything = -std::numeric_limits<double>::infinity();

// Returns `rows` with `above` rows at the top and `below` rows at the bottom
// replaced by minus infinity, because rows beyond the image's edge must not be
// chosen by a pooling.
at::Tensor without_rows_beyond_edge(const at::Tensor& rows, int64_t above,
                                    int64_t below) {
  if (above == 0 && below == 0) return rows;
  return at::constant_pad_nd(
      rows.narrow(2, above, rows.size(2) - above - below), {0, 0, above, below},
      kBelowEverything);
}

// The chain of poolings on a rank's rows [N, C, H, W]. All rows that the whole
// chain needs are fetched in one exchange, and each pooling uses up its part of
// them. The windows and their order are the same as for the whole map, so ties
// between equal values are resolved in the same way.
std::vector<at::Tensor> pools_of_rows(const at::Tensor& x,
                                      const std::vector<int64_t>& windows,
                                      const StepContext& context) {
  const int64_t rows = x.size(2);
  const RowWindow here = context.halo->window(rows);
  int64_t around = 0;
  for (const int64_t window : windows) around += window / 2;
  at::Tensor wide = with_halo(x, {around, around}, kBelowEverything, context);
  std::vector<at::Tensor> maps{x};
  for (const int64_t window : windows) {
    const int64_t reach = window / 2;
    around -= reach;
    wide = without_rows_beyond_edge(
        max_pool(wide, window, /*rows_beyond=*/0),
        std::max<int64_t>(0, around - here.first_row),
        std::max<int64_t>(0,
                          here.first_row + rows + around - here.global_rows));
    maps.push_back(wide.narrow(2, around, rows));
  }
  return maps;
}

at::Tensor pools(const at::Tensor& x, const std::vector<int64_t>& windows,
                 const StepContext& context) {
  if (context.halo != nullptr)
    return concatenate(pools_of_rows(x, windows, context));
  std::vector<at::Tensor> maps{x};
  for (const int64_t window : windows)
    maps.push_back(max_pool(maps.back(), window, window / 2));
  return concatenate(maps);
}

}  // namespace

at::Tensor added_maps(const at::Tensor& a, const at::Tensor& b,
                      const StepContext& context) {
  return derived_map({a, b}, context, [](const std::vector<at::Tensor>& maps) {
    return at::add(maps[0], maps[1]);
  });
}

at::Tensor concatenated_maps(const std::vector<at::Tensor>& maps,
                             const StepContext& context) {
  return derived_map(maps, context, concatenate);
}

at::Tensor upsampled_map(const at::Tensor& x, const StepContext& context) {
  return derived_map({x}, context, [](const std::vector<at::Tensor>& maps) {
    const at::Tensor& map = maps.front();
    return at::upsample_nearest2d(map, {2 * map.size(2), 2 * map.size(3)}, 2.0,
                                  2.0);
  });
}

// Clones, because a reshape alone would be a view if there are no samples or
// only one row, and a derived map must have its own memory.
at::Tensor folded_map(const at::Tensor& x, const StepContext& context) {
  return derived_map({x}, context, [](const std::vector<at::Tensor>& maps) {
    const at::Tensor& map = maps.front();
    const int64_t n = map.size(0), channels = map.size(1),
                  height = map.size(2) / 2, width = map.size(3) / 2;
    // Among the four cells, columns vary slower than rows.
    return map.permute({0, 2, 3, 1})
        .reshape({n, height, 2, width, 2, channels})
        .permute({0, 1, 3, 4, 2, 5})
        .clone(at::MemoryFormat::Contiguous)
        .reshape({n, height, width, 4 * channels})
        .permute({0, 3, 1, 2});
  });
}

at::Tensor sliced_map(const at::Tensor& x, int64_t first_channel,
                      int64_t channels, const StepContext& context) {
  return derived_map(
      {x}, context,
      [first_channel, channels](const std::vector<at::Tensor>& maps) {
        return maps.front()
            .narrow(1, first_channel, channels)
            .clone(at::MemoryFormat::ChannelsLast);
      });
}

at::Tensor shuffled_map(const at::Tensor& x, int64_t groups,
                        const StepContext& context) {
  return derived_map(
      {x}, context, [groups](const std::vector<at::Tensor>& maps) {
        const at::Tensor& map = maps.front();
        const int64_t n = map.size(0), channels = map.size(1),
                      height = map.size(2), width = map.size(3);
        return map.permute({0, 2, 3, 1})
            .reshape({n, height, width, groups, channels / groups})
            .permute({0, 1, 2, 4, 3})
            .clone(at::MemoryFormat::Contiguous)
            .reshape({n, height, width, channels})
            .permute({0, 3, 1, 2});
      });
}

at::Tensor chained_pools(const at::Tensor& x,
                         const std::vector<int64_t>& windows,
                         const StepContext& context) {
  const auto piece = [windows](const at::Tensor& map,
                               const StepContext& inside) {
    return pools(map, windows, inside);
  };
  return context.derived != nullptr
             ? context.derived->run_again(x, context, piece)
             : piece(x, context);
}

}  // namespace headroom::model
