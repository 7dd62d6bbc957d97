// ParallelLayout: how many ranks each axis of the mesh has.
//
//   world_size = pipeline_parallel_size x data_parallel_size
//                x spatial_parallel_size
//
// Axis order, outermost first: pipeline, data, spatial, so that the ranks that
// share an image are neighbours. This order is defined here and nowhere else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom::plan {

struct ParallelLayout {
  int pipeline_parallel_size = 1;
  int data_parallel_size = 1;
  int spatial_parallel_size = 1;

  int world_size() const {
    return pipeline_parallel_size * data_parallel_size * spatial_parallel_size;
  }
  bool operator==(const ParallelLayout&) const = default;
};

// A rank's position on each axis.
struct MeshCoordinates {
  int pipeline_stage = 0;
  int data_parallel_rank = 0;
  int spatial_rank = 0;
  bool operator==(const MeshCoordinates&) const = default;
};

// REQUIRES: 0 <= rank < layout.world_size().
MeshCoordinates coordinates_of(const ParallelLayout& layout, int rank);
int rank_of(const ParallelLayout& layout, const MeshCoordinates& coordinates);

// Parses "data=2,pipeline=1" in any order; an axis that is not named is 1.
// Throws Error naming an unknown or repeated axis or an invalid number.
ParallelLayout parse_layout(std::string_view text);
std::string to_string(const ParallelLayout& layout);
// The layout as text for parse_layout(), with only the axes above 1:
// "data=2,spatial=2"; "data=1" if every axis is 1.
std::string short_text(const ParallelLayout& layout);

// All layouts of `world_size` ranks, sorted by spatial size, then by pipeline
// size.
std::vector<ParallelLayout> layouts_of(int world_size);

}  // namespace headroom::plan
