// The first layers of a plan's pipeline stages, where they come from outside:
// off the wire or out of a file. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headroom::plan {

inline constexpr int kMaxZeroStage = 3;
inline constexpr int64_t kMaxLayers = 100'000;  // of a model

// Nothing, or what is wrong: there are as many as the pipeline axis has ranks,
// the first is 0, and each is above the one before.
std::optional<std::string> stage_begins_error(
    const std::vector<int64_t>& stage_begins, int pipeline_parallel_size);

}  // namespace headroom::plan
