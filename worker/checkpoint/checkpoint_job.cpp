#include "worker/checkpoint/checkpoint_job.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::checkpoint {

namespace {

// So short that nobody who waits for one on a thread of lowest priority waits
// long.
constexpr int64_t kPieceBytes = 512 << 10;

}  // namespace

StateCopy::StateCopy(const HostStateSnapshot& from,
                     const HostStateSnapshot& to) {
  HEADROOM_CHECK(from.parts.size() == to.parts.size(), "states differ");
  for (size_t part = 0; part < from.parts.size(); ++part) {
    const at::Tensor& source = from.parts[part].values;
    const int64_t step =
        kPieceBytes / static_cast<int64_t>(source.element_size());
    for (int64_t begin = 0; begin < source.numel(); begin += step) {
      const int64_t size = std::min(step, source.numel() - begin);
      pieces_.push_back({source.narrow(0, begin, size),
                         to.parts[part].values.narrow(0, begin, size)});
    }
  }
}

bool StateCopy::advance() {
  const size_t index = next_.fetch_add(1);
  if (index >= pieces_.size()) return false;
  const at::NoGradGuard no_grad;
  pieces_[index].to.copy_(pieces_[index].from);
  ++num_copied_;
  num_copied_.notify_all();
  return true;
}

void StateCopy::finish() {
  while (advance()) {
  }
  for (size_t copied = num_copied_; copied != pieces_.size();
       copied = num_copied_) {
    num_copied_.wait(copied);
  }
}

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
