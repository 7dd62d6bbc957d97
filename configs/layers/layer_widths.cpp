#include "configs/layers/layer_widths.h"

#include <algorithm>
#include <optional>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::layers {

std::vector<int64_t> LayerWidths::read(const TableLayer& layer,
                                       const Rule& rule) const {
  if (!layer.has(position())) return rule();
  constexpr int64_t kMost = TableLayer::kMaxChannels;
  if (!is_list) return {layer.integer(position(), std::nullopt, 1, kMost)};
  std::vector<int64_t> widths = layer.integers(position(), {}, 1, kMost);
  if (widths.size() != blocks.size()) {
    layer.fail(cat("argument ", position() + 1, " of ", layer.layer().module,
                   " lists ", widths.size(), " widths, and with ",
                   layer.repeats(), " bottlenecks there are ", blocks.size()),
               "write " + form + ", or leave them out");
  }
  return widths;
}

void LayerWidths::write(int64_t channels, const std::vector<int64_t>& widths,
                        ModelTable::Layer& line) const {
  HEADROOM_CHECK(widths.size() == blocks.size(), line.module);
  line.repeats = repeats;
  const size_t end = position() + (blocks.empty() ? 0 : 1);
  line.args.resize(std::max(line.args.size(), end));
  line.args.front() = static_cast<double>(channels);
  std::ranges::copy(before, line.args.begin() + 1);
  if (blocks.empty()) return;
  ModelTable::Argument& written = line.args[position()];
  if (is_list) {
    written = std::vector<double>(widths.begin(), widths.end());
  } else {
    written = static_cast<double>(widths.front());
  }
}

}  // namespace headroom::layers
