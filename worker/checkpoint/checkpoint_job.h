// CheckpointJob: a checkpoint from a copy of the state in host memory, layer by
// layer: the bytes that checkpoint.h writes of the state itself.
//
// Ownership: shares the copies, which must stay as they are meanwhile.
// Threads: one at a time.
// Errors: Error with exit code 5; std::bad_alloc, c10::OutOfMemoryError.
// Whatever was written is removed then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "worker/checkpoint/background_writer.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/checkpoint/state_copy.h"
#include "worker/checkpoint/state_stream.h"

namespace headroom::checkpoint {

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
