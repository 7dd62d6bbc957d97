#include "parallel/predict/evaluation.h"

#include <utility>
#include <vector>

namespace headroom::predict {
namespace {

constexpr int kGathered = 3;  // the ZeRO stage whose layers are gathered

class Run {
 public:
  explicit Run(const EvaluationRequest& request)
      : request_(request),
        stage_(request.stage),
        extents_(request.extents),
        whole_(request.extents) {
    stage_.num_frozen_layers = static_cast<int64_t>(stage_.layers.size());
    stage_.policies.clear();
    stage_.teacher.clear();
    if (stage_.zero_stage > 0) stage_.zero_stage = kGathered;
    whole_.image_height = request.whole_image_height;
    whole_.neighbours = 0;
  }

  int64_t peak_bytes() {
    std::vector<Map> heads = forward();
    if (stage_.has_head()) {
      if (extents_.is_split()) heads = joined(std::move(heads));
      if (request_.spatial_rank == 0) examine(heads);
    }
    return timeline_.peak_bytes();
  }

 private:
  std::vector<Map> forward() {
    MicroBatch images(timeline_, stage_, extents_, {});
    std::vector<Memory> received;
    for (const int layer : stage_.received())
      received.push_back(timeline_.allocate(images.map_bytes(layer)));
    return images.evaluate(std::move(received));
  }

  // Each rank copies its part into one piece; the first one receives the
  // others', and joins them while its own heads are still there.
  std::vector<Map> joined(std::vector<Map> heads) {
    std::vector<Memory> parts;
    for (const Map& head : heads) {
      parts.push_back(timeline_.allocate(head.memory->bytes));
      if (request_.spatial_rank != 0) continue;
      parts.push_back(timeline_.allocate(
          whole_.map_bytes(head.channels, head.stride) - head.memory->bytes));
    }
    if (request_.spatial_rank != 0) return {};
    std::vector<Map> result;
    for (const Map& head : heads)
      result.push_back(
          {timeline_.allocate(whole_.map_bytes(head.channels, head.stride)),
           head.channels, head.stride});
    return result;
  }

  void examine(const std::vector<Map>& heads) {
    int64_t all = 0;
    for (const Map& head : heads) all += head.memory->bytes;
    {
      const Memory boxes = timeline_.allocate(all);
      // Non-maximum suppression reads float32.
      if (extents_.element_bytes != kFloatBytes)
        timeline_.touch(all / extents_.element_bytes * kFloatBytes);
    }
    Graph nobodys(timeline_);
    run_loss({whole_, timeline_, nobodys, stage_.end - 1}, heads,
             request_.loss);
  }

  const EvaluationRequest& request_;
  SimulatedStage stage_;
  MicroBatchShape extents_, whole_;
  MemoryTimeline timeline_;
};

}  // namespace

int64_t evaluation_peak_bytes(const EvaluationRequest& request) {
  return Run(request).peak_bytes();
}

}  // namespace headroom::predict
