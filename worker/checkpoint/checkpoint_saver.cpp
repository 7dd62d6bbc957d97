#include "worker/checkpoint/checkpoint_saver.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/collectives/gather.h"
#include "worker/checkpoint/checkpoint.h"

namespace headroom::checkpoint {
namespace {

// Pieces are small, so that a thread does not wait long for the piece that a
// thread of low priority is copying.
constexpr int64_t kPieceBytes = 512 << 10;

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::OutOfMemoryError&) {
    return "there is no host memory for its layers";
  } catch (const std::bad_alloc&) {
    return "there is no host memory for its layers";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::string text_of(CheckpointSaver::Answer answer) {
  return std::to_string(static_cast<int>(answer));
}

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
    file_.reset();  // also removes the files written so far
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

// Assembles a layer from its parts. If one part is the whole layer, returns it
// without copying.
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
    // The range has already been filled from another rank's copy.
    if (part->begin + size <= end) continue;
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

CheckpointSaver::CheckpointSaver(Options options, step::TrainingState& state,
                                 collectives::Mesh& mesh)
    : options_(std::move(options)), state_(state), mesh_(mesh) {
  StateStream stream = checkpoint_stream(state, &mesh);
  stream.share_blocks();
  blocks_ =
      std::make_shared<const std::vector<StateStream::Block>>(stream.blocks());
  reconnect();
  state.set_before_change([this] { finish_copy(); });
}

CheckpointSaver::~CheckpointSaver() { state_.set_before_change(nullptr); }

// Whether this rank sends its part. Of the ranks with the same part, only one
// sends it; rank 0 is always one of the senders.
bool CheckpointSaver::sends_its_part() const {
  const plan::MeshCoordinates& here = mesh_.here;
  return here.spatial_rank == 0 &&
         (here.data_parallel_rank == 0 || state_.is_sharded());
}

CheckpointSaver::Answer CheckpointSaver::begin(
    const at::Tensor& own_copy, const memory::MemoryRetry& retry) {
  settle();
  std::vector<int64_t> part_bytes;
  if (parts_) {
    const int64_t own = sends_its_part() ? own_copy.numel() : 0;
    for (const std::string& bytes :
         collectives::gather_bytes(mesh_.world, std::to_string(own))) {
      part_bytes.push_back(std::stoll(bytes));
    }
  }
  std::string mine;
  if (is_root()) mine = text_of(answer(part_bytes, retry));
  const std::string agreed = collectives::broadcast_bytes(mesh_.world, mine, 0);
  if (agreed != text_of(Answer::kBegun)) {
    return agreed == text_of(Answer::kSkipped) ? Answer::kSkipped
                                               : Answer::kNoRoom;
  }
  if (is_root()) {
    record_ = {state_.counters.committed_steps,
               counters_to_text(state_.counters), options_.plan_json};
  }
  if (!parts_) {
    if (is_root()) copy_state();
    return Answer::kBegun;
  }
  if (is_root()) {
    transfers_.at(0).message = own_copy;
    for (int rank = 1; rank < mesh_.world.size(); ++rank) {
      Transfer& part = transfers_.at(static_cast<size_t>(rank));
      if (!part.message.defined()) continue;
      part.work = parts_->recv_async(part.message, rank);
    }
  } else if (sends_its_part()) {
    transfers_.push_back({own_copy, parts_->send_async(own_copy, 0)});
  }
  return Answer::kBegun;
}

// Rank 0 allocates all memory for a copy before it answers, so that peers can
// rely on the answer.
CheckpointSaver::Answer CheckpointSaver::answer(
    const std::vector<int64_t>& part_bytes, const memory::MemoryRetry& retry) {
  if (writer_.is_busy()) return Answer::kSkipped;
  note_outcome();
  if (!options_.may_copy) return Answer::kNoRoom;
  const activations::CountingAllocator::HostMemory host;
  try {
    retry.run([&] {
      transfers_.clear();
      for (size_t rank = 0; rank < part_bytes.size(); ++rank) {
        Transfer& part = transfers_.emplace_back();
        if (rank == 0 || part_bytes[rank] == 0) continue;
        part.message = at::empty({part_bytes[rank]}, at::kByte);
      }
      if (parts_ || !copy_.parts.empty()) return;
      HostStateSnapshot copy = parts_of(state_, "");
      for (HeldPart& part : copy.parts) {
        part.values = at::empty(part.values.sizes(), part.values.scalar_type());
      }
      copy_ = std::move(copy);
    });
  } catch (const c10::OutOfMemoryError&) {
    transfers_.clear();
    return Answer::kNoRoom;
  } catch (const std::bad_alloc&) {
    transfers_.clear();
    return Answer::kNoRoom;
  }
  return Answer::kBegun;
}

void CheckpointSaver::copy_state() {
  copying_ = std::make_shared<StateCopy>(parts_of(state_, ""), copy_);
  // A state on a device is copied on this thread, because only this thread's
  // stream runs the copy after the kernels of the commit.
  if (!state_.device().is_cpu()) finish_copy();
  write({copy_});
}

void CheckpointSaver::finish_copy() {
  if (copying_) std::exchange(copying_, nullptr)->finish();
}

void CheckpointSaver::settle() {
  if (transfers_.empty()) return;
  for (const Transfer& part : transfers_) {
    if (part.work) part.work->wait();
  }
  const std::vector<Transfer> whole = std::exchange(transfers_, {});
  if (!is_root()) return;
  std::vector<HostStateSnapshot> states;
  for (const Transfer& part : whole) {
    if (part.message.defined()) states.push_back(unpack(part.message));
  }
  write(std::move(states));
}

void CheckpointSaver::write(std::vector<HostStateSnapshot> states) {
  job_ = std::make_shared<CheckpointJob>(options_.checkpoints, record_,
                                         options_.keep, blocks_,
                                         std::move(states), copying_);
  writer_.start(job_);
}

void CheckpointSaver::finish() {
  settle();
  finish_copy();
  writer_.finish();
}

void CheckpointSaver::disconnect() {
  transfers_.clear();
  parts_.reset();
}

void CheckpointSaver::reconnect() {
  if (!state_.is_whole()) parts_ = mesh_.world.split(0, mesh_.world.rank());
}

void CheckpointSaver::note_outcome() {
  if (!job_ || writer_.is_busy()) return;
  CheckpointOutcome outcome;
  outcome.step = job_->record().step;
  if (const std::exception_ptr failure = writer_.error()) {
    outcome.failure = text_of(failure);
  } else {
    outcome.folder = job_->file().folder();
    outcome.bytes = job_->file().num_bytes();
  }
  outcomes_.push_back(std::move(outcome));
  job_.reset();
}

std::vector<CheckpointOutcome> CheckpointSaver::take_outcomes() {
  note_outcome();
  return std::exchange(outcomes_, {});
}

}  // namespace headroom::checkpoint
