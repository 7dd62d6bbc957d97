#include "worker/checkpoint/checkpoint_saver.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>
#include <utility>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/gather.h"
#include "worker/checkpoint/checkpoint.h"

namespace headroom::checkpoint {
namespace {

// Pieces are small, so that a thread does not wait long for the piece that a
// thread of low priority is copying.
constexpr int64_t kPieceBytes = 512 << 10;

using Json = nlohmann::json;

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

// Whether this rank sends or writes its part. Of the ranks with the same part,
// only one does; rank 0 is always one of them.
bool CheckpointSaver::gives_its_part() const {
  const plan::MeshCoordinates& here = mesh_.here;
  return here.spatial_rank == 0 &&
         (here.data_parallel_rank == 0 || state_.is_sharded());
}

std::filesystem::path CheckpointSaver::folder_of(int64_t step) const {
  return options_.checkpoints / cat("step-", step);
}

CheckpointSaver::Answer CheckpointSaver::begin(
    const HostStateSnapshot& own_part, const memory::MemoryRetry& retry) {
  settle();
  at::Tensor own_copy;
  std::vector<int64_t> part_bytes;
  if (parts_ && !shares_folder_) {
    own_copy = pack(own_part);
    const int64_t own = gives_its_part() ? own_copy.numel() : 0;
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
  record_ = {state_.counters.committed_steps, counters_to_text(state_.counters),
             options_.plan_json};
  if (!parts_) {
    if (is_root()) copy_state();
  } else if (shares_folder_) {
    begin_shards(own_part);
  } else {
    send_parts(own_copy);
  }
  return Answer::kBegun;
}

void CheckpointSaver::begin_shards(const HostStateSnapshot& own_part) {
  are_shards_open_ = true;
  if (!gives_its_part()) return;
  std::vector<HeldPart> parts;
  for (const HeldPart& part : own_part.parts) {
    // The first of the data ranks writes what all of them have.
    if (mesh_.here.data_parallel_rank == 0 || is_divided(part.buffer)) {
      parts.push_back(part);
    }
  }
  shard_ = std::make_shared<ShardJob>(
      folder_of(record_.step), mesh_.world.rank(), std::move(parts),
      is_root() ? *blocks_ : std::vector<StateStream::Block>());
  writer_.start(shard_);
}

bool CheckpointSaver::is_divided(const std::string& buffer) const {
  return std::ranges::any_of(
      state_.buffers(), [&](const step::TrainingState::Buffer& one) {
        return one.name == buffer && one.owners != nullptr;
      });
}

void CheckpointSaver::send_parts(const at::Tensor& own_copy) {
  if (is_root()) {
    transfers_.at(0).message = own_copy;
    for (int rank = 1; rank < mesh_.world.size(); ++rank) {
      Transfer& part = transfers_.at(static_cast<size_t>(rank));
      if (!part.message.defined()) continue;
      part.work = parts_->recv_async(part.message, rank);
    }
  } else if (gives_its_part()) {
    transfers_.push_back({own_copy, parts_->send_async(own_copy, 0)});
    sent_bytes_ += own_copy.numel();
  }
}

// Ends the open checkpoint if all ranks have ended their shards: rank 0 writes
// the manifest, or all remove their files because one could not be written.
void CheckpointSaver::end_shards() {
  if (!are_shards_open_) return;
  at::Tensor ended = at::empty({1}, at::kLong);
  ended.fill_(writer_.is_busy() ? 0 : 1);
  parts_->all_reduce(ended);
  if (*ended.const_data_ptr<int64_t>() < mesh_.world.size()) return;
  are_shards_open_ = false;
  const std::shared_ptr<ShardJob> shard = std::exchange(shard_, nullptr);
  Json mine = Json::object();
  if (shard && writer_.error()) {
    mine["failure"] = text_of(writer_.error());
  } else if (shard) {
    mine["stored"] = {shard->file().name, shard->file().bytes,
                      shard->file().digest};
  }
  CheckpointOutcome outcome{record_.step, folder_of(record_.step), 0, ""};
  std::vector<StoredFile> files;
  for (const std::string& text :
       collectives::gather_bytes(*parts_, mine.dump())) {
    const Json told = Json::parse(text);
    if (told.contains("failure") && outcome.failure.empty()) {
      outcome.failure = told.at("failure").get<std::string>();
    }
    if (!told.contains("stored")) continue;
    const Json& file = told.at("stored");
    files.push_back({file.at(0).get<std::string>(), file.at(1).get<int64_t>(),
                     file.at(2).get<std::string>()});
  }
  if (shard && outcome.failure.empty()) shard->keep();
  if (!is_root()) return;
  if (outcome.failure.empty()) {
    try {
      outcome.bytes =
          commit_manifest(outcome.folder, record_, files, options_.keep);
    } catch (const Error& error) {
      outcome.failure = error.what();
    }
  }
  if (!outcome.failure.empty()) remove_step_folder(outcome.folder);
  outcomes_.push_back(std::move(outcome));
}

// Rank 0 allocates all memory for a copy before it answers, so that peers can
// rely on the answer.
CheckpointSaver::Answer CheckpointSaver::answer(
    const std::vector<int64_t>& part_bytes, const memory::MemoryRetry& retry) {
  if (writer_.is_busy() || are_shards_open_) return Answer::kSkipped;
  note_outcome();
  if (shares_folder_) {
    // Files of an earlier attempt, before others write theirs.
    remove_step_folder(folder_of(state_.counters.committed_steps));
    return Answer::kBegun;
  }
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
  end_shards();
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
  end_shards();
}

void CheckpointSaver::disconnect() {
  transfers_.clear();
  parts_.reset();
  // A checkpoint whose shards were begun is not completed any more.
  if (shard_) shard_->abandon();
  shard_.reset();
  are_shards_open_ = false;
}

void CheckpointSaver::reconnect() {
  if (state_.is_whole()) return;
  if (!job_) writer_.finish();  // of an abandoned shard
  parts_ = mesh_.world.split(0, mesh_.world.rank());
  shares_folder_ = all_see_a_file();
}

// Whether all ranks see a new file of rank 0 beside the checkpoints.
bool CheckpointSaver::all_see_a_file() const {
  std::string name;
  std::error_code error;
  if (is_root()) {
    name = cat(".shared-", std::random_device{}(), std::random_device{}());
    std::filesystem::create_directories(options_.checkpoints, error);
    std::ofstream(options_.checkpoints / name).flush();
  }
  name = collectives::broadcast_bytes(*parts_, name, 0);
  const bool all = collectives::all_agree(
      *parts_, std::filesystem::exists(options_.checkpoints / name, error));
  if (is_root()) std::filesystem::remove(options_.checkpoints / name, error);
  return all;
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
