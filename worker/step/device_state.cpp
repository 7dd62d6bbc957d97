#include "worker/step/device_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <map>

#include "parallel/base/memory_category.h"
#include "worker/model/conv_block.h"

namespace headroom::step {
namespace {

// Maps each element of the running statistics to its index in the sums. Padding
// has index 0, which is never read.
at::Tensor places_of(model::LayerGraph& model,
                     const data_parallel::FlatBuffer& statistics) {
  std::map<const at::Tensor*, int64_t> begins;  // first index in the sums
  for (const model::LayerGraph::BatchNorm& norm : model.batch_norms()) {
    begins[norm.running_mean] = norm.sums_offset;
    begins[norm.running_var] = norm.sums_offset + norm.channels;
  }
  at::Tensor places = at::zeros({statistics.size()}, at::kLong);
  size_t slot = 0;
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.role != model::TensorRole::kRunningStatistic) continue;
    const data_parallel::FlatBuffer::Slot& at = statistics.slots()[slot++];
    const int64_t begin = begins.at(entry.tensor);
    for (int64_t i = 0; i < at.size; ++i) {
      places.data_ptr<int64_t>()[at.offset + i] = begin + i;
    }
  }
  return places;
}

std::vector<kernels::FlatBufferRange> ranges_of(
    std::span<const optim::Segment> segments) {
  std::vector<kernels::FlatBufferRange> ranges;
  for (const optim::Segment& segment : segments) {
    ranges.push_back({segment.offset, segment.size, segment.group});
  }
  return ranges;
}

at::Tensor host_doubles(const kernels::CommitOutcome& outcome) {
  at::Tensor doubles = at::empty({kernels::kOutcomeDoubles}, at::kDouble);
  std::memcpy(doubles.mutable_data_ptr(), &outcome, sizeof(outcome));
  return doubles;
}

}  // namespace

DeviceState::DeviceState(const devices::ComputeDevice& device,
                         model::LayerGraph& model,
                         const data_parallel::FlatBuffer& statistics,
                         const at::Tensor& average, const at::Tensor& sums,
                         std::span<const Piece> pieces)
    : device_(device) {
  static_assert(kernels::kParameterGroups == optim::kNumParameterGroups);
  const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
  int64_t num_partial = 0;
  for (const Piece& piece : pieces) {
    pieces_.push_back({piece.buffers, {}});
    kernels::FlatBuffers& buffers = pieces_.back().buffers;
    buffers.pieces = device.kernels()->make_pieces(
        device.device(), ranges_of(piece.segments), buffers.parameters.numel());
    num_partial += buffers.pieces.size(0);
  }
  numbers_ =
      at::empty({sizeof(kernels::CommitNumbers)}, device.options(at::kByte));
  partial_ = at::empty({num_partial}, device.options(at::kDouble));
  int64_t first = 0;
  for (OwnPiece& piece : pieces_) {
    const int64_t count = piece.buffers.pieces.size(0);
    piece.partial = partial_.narrow(0, first, count);
    first += count;
  }
  no_items_ = at::zeros({kernels::kStepItems}, device.options(at::kDouble));
  outcome_ = at::zeros({kernels::kOutcomeDoubles}, device.options(at::kDouble));
  running_ = {statistics.values(), average, sums,
              device.upload(places_of(model, statistics)),
              model::kBatchNormMomentum};
}

at::Tensor DeviceState::packed(kernels::CommitNumbers numbers,
                               optim::OptimizerKind kind,
                               const optim::OptimizerStep& step) {
  if (numbers.steps_optimizer) {
    for (size_t group = 0; group < step.groups.size(); ++group) {
      const optim::GroupSettings& of = step.groups[group];
      if (kind == optim::OptimizerKind::kSgd) {
        numbers.sgd[group] = {of.lr, of.weight_decay, step.momentum,
                              /*clip=*/1, step.step == 1};
      } else {
        numbers.adam[group] = optim::adam_coefficients(
            of, {step.momentum, step.step, /*clip_coefficient=*/1,
                 kind == optim::OptimizerKind::kAdamW});
      }
    }
    numbers.average_weight = 1 - optim::ema_decay(step.step);
  }
  at::Tensor bytes = at::empty({sizeof(numbers)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &numbers, sizeof(numbers));
  return bytes;
}

const at::Tensor& DeviceState::upload(const at::Tensor& packed) {
  device_.upload_into(packed, numbers_);
  return numbers_;
}

void DeviceState::measure(const at::Tensor& numbers, const at::Tensor& items,
                          const Peers& peers) {
  const kernels::CommitPlace place = {numbers, outcome_,
                                      items.defined() ? items : no_items_,
                                      peers.objections, peers.failure_word};
  for (const OwnPiece& piece : pieces_) {
    device_.kernels()->squares(piece.buffers, place, piece.partial);
  }
  device_.kernels()->decide(partial_, place);
}

void DeviceState::apply(const at::Tensor& numbers) {
  const kernels::CommitPlace place = {numbers, outcome_};
  for (const OwnPiece& piece : pieces_) {
    device_.kernels()->commit(piece.buffers, place);
  }
  device_.kernels()->move_running(running_, place);
}

kernels::CommitOutcome DeviceState::outcome_of(const at::Tensor& doubles) {
  const at::Tensor host = doubles.cpu();
  kernels::CommitOutcome outcome;
  std::memcpy(&outcome, host.const_data_ptr(), sizeof(outcome));
  return outcome;
}

void DeviceState::commit_as_voted(double clip) {
  kernels::CommitOutcome outcome;
  outcome.commits = 1;
  outcome.clip = clip;
  device_.upload_into(host_doubles(outcome), outcome_);
}

}  // namespace headroom::step
