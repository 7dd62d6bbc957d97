// CheckpointJob: a checkpoint from a copy of the state in host memory, layer by
// layer: the bytes that checkpoint.h writes of the state itself.
//
// Ownership: shares the copies, which must stay as they are meanwhile.
// Threads: one at a time.
// Errors: Error with exit code 5; std::bad_alloc, c10::OutOfMemoryError.
// Whatever was written is removed then.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "worker/checkpoint/background_writer.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/checkpoint/state_stream.h"

#include <ATen/core/Tensor.h>

namespace headroom::checkpoint {

// StateCopy: the state between two steps, copied while the next one runs.
//
// A state changes at its commit alone, so until then a thread that gets what
// the others leave can copy it, piece by piece. Whoever is about to change the
// state does the rest (TrainingState::before_change).
//
// Ownership: shares the memory of both sides until its end.
// Threads: any number at a time.

class StateCopy {
 public:
  // REQUIRES: `to` has the parts of `from`, in memory of their sizes.
  StateCopy(const HostStateSnapshot& from, const HostStateSnapshot& to);

  // Copies a piece; false: none was left.
  bool advance();
  // Returns once all is copied, by whomever.
  void finish();

 private:
  struct Piece {
    at::Tensor from, to;
  };

  std::vector<Piece> pieces_;
  std::atomic<size_t> next_ = 0;
  std::atomic<size_t> num_copied_ = 0;
};

class CheckpointJob final : public BackgroundWriter::Job {
 public:
  using Blocks = std::shared_ptr<const std::vector<StateStream::Block>>;

  // `states` together have every layer of `blocks`; `copying`: once it is
  // finished. Null: they have them already.
  CheckpointJob(std::filesystem::path checkpoints, CheckpointRecord record,
                int64_t keep, Blocks blocks,
                std::vector<HostStateSnapshot> states,
                std::shared_ptr<StateCopy> copying = nullptr);

  // A piece of the copy, then a layer; at last the manifest.
  bool advance() override;

  const CheckpointRecord& record() const { return record_; }
  // Once all is done.
  const CheckpointFile& file() const { return *file_; }

 private:
  bool advance_or_throw();
  void begin();
  at::Tensor layer_of(const StateStream::Block& block);

  const std::filesystem::path checkpoints_;
  const CheckpointRecord record_;
  const int64_t keep_;
  const Blocks blocks_;
  std::vector<HostStateSnapshot> states_;
  std::shared_ptr<StateCopy> copying_;
  size_t next_ = 0;  // of blocks_
  std::unique_ptr<CheckpointFile> file_;
  at::Tensor layer_, dense_;  // memory for the largest
};

}  // namespace headroom::checkpoint
