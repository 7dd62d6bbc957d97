#include "parallel/cuda/kernels/flat_buffer_pieces.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"

namespace headroom::cuda {

std::vector<FlatBufferPiece> flat_buffer_pieces(
    std::span<const devices::FlatBufferRange> ranges, int64_t size) {
  std::vector<FlatBufferPiece> pieces;
  int64_t done = 0;
  const auto cut_to = [&](int64_t end, int group) {
    for (; done < end; done += pieces.back().size) {
      pieces.push_back({done,
                        static_cast<int32_t>(
                            std::min<int64_t>(kMostPieceElements, end - done)),
                        group});
    }
  };
  for (const devices::FlatBufferRange& range : ranges) {
    HEADROOM_CHECK(range.offset >= done && range.size >= 0 &&
                       range.offset + range.size <= size,
                   "range [" + std::to_string(range.offset) + ", +" +
                       std::to_string(range.size) + ") after " +
                       std::to_string(done) + " in " + std::to_string(size));
    HEADROOM_CHECK(range.group >= 0 && range.group < kernels::kParameterGroups,
                   "group " + std::to_string(range.group));
    cut_to(range.offset, -1);
    cut_to(range.offset + range.size, range.group);
  }
  cut_to(size, -1);
  return pieces;
}

}  // namespace headroom::cuda
