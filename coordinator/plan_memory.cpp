#include "coordinator/plan_memory.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "coordinator/stage_cut.h"
#include "parallel/base/check.h"
#include "parallel/plan/batch_split.h"

namespace headroom {
namespace {

constexpr int64_t kAnchorsPerLevel = 3;
constexpr int64_t kBoxFields = 5;  // x, y, width, height, objectness
constexpr int64_t kSyntheticBoxesPerImage = 8;  // --synthetic-input

}  // namespace

std::vector<memory::ModelRow> memory_rows(const std::vector<RowCost>& rows) {
  using Kind = memory::ModelRow::Kind;
  static const std::map<std::string, Kind> kinds = {
      {"Conv", Kind::kConv},     {"C3", Kind::kC3},
      {"SPPF", Kind::kSppf},     {"nn.Upsample", Kind::kUpsample},
      {"Concat", Kind::kConcat}, {"Detect", Kind::kDetect},
  };
  std::vector<memory::ModelRow> result;
  for (const RowCost& row : rows) {
    memory::ModelRow part;
    part.kind = kinds.at(row.module);
    part.inputs = row.inputs;
    part.channels = row.channels;
    part.stride = row.stride;
    part.kernel = row.kernel;
    part.repeats = row.repeats;
    part.shortcut = row.shortcut;
    part.parameters = row.parameters;
    part.parameter_tensors = row.parameter_tensors;
    part.norm_channels = row.norm_channels;
    result.push_back(part);
  }
  return result;
}

MemoryRequest memory_request(const RunConfig& config, const Plan& plan,
                             const std::vector<RowCost>& rows) {
  const int64_t stride = largest_stride(rows);
  MemoryRequest request;
  request.rows = memory_rows(rows);
  request.plan = plan;
  request.global_batch_size = config.global_batch_size;
  request.image_height = rounded_image_size(config.image_height, stride);
  request.image_width = rounded_image_size(config.image_width, stride);
  request.element_bytes = config.precision == Precision::kFp64 ? 8 : 4;
  request.num_moments = config.optimizer == "SGD" ? 1 : 2;
  const RowCost& detect = rows.back();
  request.num_classes =
      detect.channels /
          (kAnchorsPerLevel * static_cast<int64_t>(detect.inputs.size())) -
      kBoxFields;
  request.boxes_per_image =
      config.synthetic_input ? kSyntheticBoxesPerImage : kAssumedBoxesPerImage;
  return request;
}

std::vector<int64_t> predicted_peak_bytes(const MemoryRequest& request) {
  // Ranks with equal shares need equally much.
  const ParallelLayout& layout = request.plan.layout;
  const auto samples = [&](const MeshCoordinates& at) {
    return share_of(request.global_batch_size, layout.data_parallel_size,
                    at.data_parallel_rank)
        .size();
  };
  const auto image_rows = [&](const MeshCoordinates& at) {
    int64_t stride = 1;
    for (const memory::ModelRow& row : request.rows)
      stride = std::max(stride, row.stride);
    return share_of(request.image_height / stride, layout.spatial_parallel_size,
                    at.spatial_rank)
        .size();
  };
  std::map<std::tuple<int, int64_t, int64_t>, int64_t> known;
  std::vector<int64_t> bytes;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const MeshCoordinates at = coordinates_of(layout, rank);
    const auto [place, is_new] =
        known.try_emplace({at.pipeline_stage, samples(at), image_rows(at)}, 0);
    if (is_new) place->second = estimate_rank_memory(request, at).total();
    bytes.push_back(place->second);
  }
  return bytes;
}

}  // namespace headroom
