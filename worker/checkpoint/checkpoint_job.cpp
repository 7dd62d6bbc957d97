#include "worker/checkpoint/checkpoint_job.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::checkpoint {

CheckpointJob::CheckpointJob(std::filesystem::path checkpoints,
                             CheckpointRecord record, int64_t keep,
                             Blocks blocks,
                             std::vector<HostStateSnapshot> states,
                             std::shared_ptr<StateCopy> copying)
    : checkpoints_(std::move(checkpoints)),
      record_(std::move(record)),
      keep_(keep),
      blocks_(std::move(blocks)),
      states_(std::move(states)),
      copying_(std::move(copying)) {}

void CheckpointJob::begin() {
  layer_ = at::empty({largest_block_bytes(*blocks_)}, at::kByte);
  dense_ = at::empty({largest_block_bytes(*blocks_)}, at::kByte);
  file_ = std::make_unique<CheckpointFile>(checkpoints_, record_.step,
                                           tensors_of(*blocks_));
}

bool CheckpointJob::advance() {
  try {
    return advance_or_throw();
  } catch (...) {
    file_.reset();  // and what was written with it
    states_.clear();
    throw;
  }
}

bool CheckpointJob::advance_or_throw() {
  const at::NoGradGuard no_grad;
  if (copying_ && copying_->advance()) return true;
  if (copying_) std::exchange(copying_, nullptr)->finish();
  if (!file_) {
    begin();
  } else if (next_ < blocks_->size()) {
    const StateStream::Block& block = (*blocks_)[next_++];
    take_tensors(block, layer_of(block), dense_,
                 [&](const at::Tensor& tensor) { file_->write(tensor); });
  } else {
    file_->commit(record_, keep_);
    states_.clear();
    return false;
  }
  return true;
}

// Where one part is the whole layer it is taken as it lies.
at::Tensor CheckpointJob::layer_of(const StateStream::Block& block) {
  std::vector<const HeldPart*> parts;
  for (const HostStateSnapshot& state : states_) {
    for (const HeldPart& part : state.parts) {
      if (part.layer == block.layer && part.buffer == block.name) {
        parts.push_back(&part);
      }
    }
  }
  std::ranges::sort(parts, {}, &HeldPart::begin);
  int64_t end = 0;
  at::Tensor layer;
  for (const HeldPart* part : parts) {
    const int64_t size =
        std::min(part->values.numel(), block.size - part->begin);
    HEADROOM_CHECK(part->begin <= end, block.name + " has a gap");
    if (part->begin + size <= end) continue;  // another rank's copy
    if (size == block.size) return part->values.narrow(0, 0, size);
    if (!layer.defined()) {
      const auto bytes = static_cast<int64_t>(c10::elementSize(block.type));
      layer = layer_.narrow(0, 0, block.size * bytes).view(block.type);
    }
    layer.narrow(0, part->begin, size).copy_(part->values.narrow(0, 0, size));
    end = part->begin + size;
  }
  HEADROOM_CHECK(end == block.size, block.name + " is not whole");
  return layer;
}

}  // namespace headroom::checkpoint
