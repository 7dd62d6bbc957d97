#include "parallel/plan/layout.h"

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::plan {
namespace {

constexpr int kMostRanks = 65536;

Error bad_layout(std::string_view text, const std::string& why) {
  return Error("layout", "--layout " + std::string(text) + ": " + why,
               "write for example data=2,pipeline=1,spatial=1");
}

}  // namespace

MeshCoordinates coordinates_of(const ParallelLayout& layout, int rank) {
  HEADROOM_CHECK(rank >= 0 && rank < layout.world_size(),
                 cat("rank ", rank, " of ", to_string(layout)));
  const int spatial = layout.spatial_parallel_size;
  const int data = layout.data_parallel_size;
  return {rank / (spatial * data), rank / spatial % data, rank % spatial};
}

int rank_of(const ParallelLayout& layout, const MeshCoordinates& coordinates) {
  return (coordinates.pipeline_stage * layout.data_parallel_size +
          coordinates.data_parallel_rank) *
             layout.spatial_parallel_size +
         coordinates.spatial_rank;
}

ParallelLayout parse_layout(std::string_view text) {
  ParallelLayout layout;
  std::map<std::string_view, int*> axes = {
      {"data", &layout.data_parallel_size},
      {"pipeline", &layout.pipeline_parallel_size},
      {"spatial", &layout.spatial_parallel_size}};
  std::set<std::string_view> named;
  int64_t product = 1;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view()
                                           : rest.substr(comma + 1);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      throw bad_layout(text, "'" + std::string(part) + "' has no '='");
    }
    const std::string_view axis = part.substr(0, equals);
    const std::string_view number = part.substr(equals + 1);
    const auto size = parse_whole(number, 1, kMostRanks);
    if (!size) {
      throw bad_layout(text, "'" + std::string(number) +
                                 "' is not a number of ranks of at least 1");
    }
    const auto found = axes.find(axis);
    if (found == axes.end()) {
      throw bad_layout(text, "there is no axis '" + std::string(axis) +
                                 "'; the axes are data, pipeline, spatial");
    }
    if (!named.insert(axis).second) {
      throw bad_layout(text,
                       "the axis " + std::string(axis) + " is named twice");
    }
    *found->second = static_cast<int>(*size);
    product *= *size;
    if (product > kMostRanks) {
      throw bad_layout(text, cat("more than ", kMostRanks, " ranks"));
    }
  }
  return layout;
}

std::string to_string(const ParallelLayout& layout) {
  return cat("data=", layout.data_parallel_size,
             ",pipeline=", layout.pipeline_parallel_size,
             ",spatial=", layout.spatial_parallel_size);
}

std::string short_text(const ParallelLayout& layout) {
  std::string text;
  for (const auto& [axis, size] :
       {std::pair{"data", layout.data_parallel_size},
        std::pair{"pipeline", layout.pipeline_parallel_size},
        std::pair{"spatial", layout.spatial_parallel_size}}) {
    if (size == 1) continue;
    text += cat(text.empty() ? "" : ",", axis, "=", size);
  }
  return text.empty() ? "data=1" : text;
}

std::vector<ParallelLayout> layouts_of(int world_size) {
  std::vector<ParallelLayout> layouts;
  for (int spatial = 1; spatial <= world_size; ++spatial) {
    if (world_size % spatial != 0) continue;
    const int rest = world_size / spatial;
    for (int pipeline = 1; pipeline <= rest; ++pipeline) {
      if (rest % pipeline != 0) continue;
      layouts.push_back({.pipeline_parallel_size = pipeline,
                         .data_parallel_size = rest / pipeline,
                         .spatial_parallel_size = spatial});
    }
  }
  return layouts;
}

}  // namespace headroom::plan
