// CheckpointSaver: writes checkpoints while training continues.
//
//   begin    after a committed step. If rank 0 has the whole state, it copies
//            the state to host memory while the next step runs, until that step
//            commits. If ranks hold parts of the state, the newest copies of
//            their own parts (peer_replicas.h) are kept
//   then     a thread of lowest priority writes the files: rank 0, or each rank
//            with a part of the state its shard (state_shards.h)
//   settle   before each step's exchanges: once all shards are stored, rank 0
//            writes the manifest
//
// If the ranks do not share the folder of checkpoints, parts are sent to rank 0
// instead, while the next step begins; settle() waits for them.
//
// Only one checkpoint is written at a time; a checkpoint that becomes due
// during that time is skipped. Training continues even if writing fails; the
// outcome reports the failure.
//
// The saver registers a callback that the state calls before it changes. The
// memory of a copy is kept for the next checkpoint. Errors: CommunicationError.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/background_writer.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/checkpoint/state_shards.h"
#include "worker/checkpoint/state_stream.h"
#include "worker/memory/memory_ladder.h"
#include "worker/step/training_state.h"

namespace headroom::checkpoint {

// StateCopy: copies the state after a step while the next step runs.
//
// A state changes only when a step commits. Until then a background thread can
// copy it piece by piece while the processor has time. Before the state
// changes, finish() copies the rest (TrainingState::before_change). Any number
// of threads may copy at the same time.
class StateCopy {
 public:
  // REQUIRES: `to` has the same parts as `from`, with memory allocated.
  StateCopy(const HostStateSnapshot& from, const HostStateSnapshot& to);

  // Copies one piece. Returns false if no piece was left.
  bool advance();
  // Copies the rest, and waits for the pieces of other threads.
  void finish();

 private:
  struct Piece {
    at::Tensor from, to;
  };

  std::vector<Piece> pieces_;
  std::atomic<size_t> next_ = 0;
  std::atomic<size_t> num_copied_ = 0;
};

// Writes a checkpoint from copies of the state in host memory, layer by layer:
// the same bytes that save_checkpoint() writes. It shares the copies, which
// must not change until the job has ended. Errors: Error with exit code 5;
// std::bad_alloc; c10::OutOfMemoryError. After an error the files written so
// far are removed.
class CheckpointJob final : public BackgroundWriter::Job {
 public:
  using Blocks = std::shared_ptr<const std::vector<StateStream::Block>>;

  // `states` together contain every layer of `blocks` once `copying` is
  // finished; `copying` is nullptr if the states are already complete.
  CheckpointJob(std::filesystem::path checkpoints, CheckpointRecord record,
                int64_t keep, Blocks blocks,
                std::vector<HostStateSnapshot> states,
                std::shared_ptr<StateCopy> copying = nullptr);

  // Does one piece: a piece of the copy, then a layer, at last the manifest.
  bool advance() override;

  const CheckpointRecord& record() const { return record_; }
  // Valid after the last piece.
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
  size_t next_ = 0;  // index of the next block in blocks_
  std::unique_ptr<CheckpointFile> file_;
  at::Tensor layer_, dense_;  // buffers for the largest layer
};

// The result of a checkpoint that was written while training continued.
struct CheckpointOutcome {
  int64_t step = 0;
  std::filesystem::path folder;
  int64_t bytes = 0;    // size of all files
  std::string failure;  // "" if the checkpoint is on disk
};

class CheckpointSaver {
 public:
  struct Options {
    std::filesystem::path checkpoints;
    std::string plan_json;
    int64_t keep = 2;      // checkpoints to keep; each takes disk space
    bool may_copy = true;  // false if rank 0's host has no room for a copy
  };

  // Collective over the world of the mesh.
  CheckpointSaver(Options options, step::TrainingState& state,
                  collectives::Mesh& mesh);
  // Finishes writing the copied data before it returns.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  enum class Answer {
    kBegun,
    kSkipped,  // the previous one is still being written
    kNoRoom    // no memory for a copy; no checkpoint was begun
  };
  // `own_part` is the newest copy of this rank's part (PeerReplicas::newest);
  // empty if this rank has the whole state. Collective, with the same answer on
  // all ranks.
  Answer begin(const HostStateSnapshot& own_part,
               const memory::MemoryRetry& retry = {});
  // Waits for transfers to rank 0, and ends a checkpoint whose shards are all
  // stored. Collective.
  void settle();
  // Waits until no checkpoint is being written. Collective, like settle().
  void finish();
  // Makes peers that wait for this rank fail at once. A copy that has not fully
  // arrived is dropped.
  void disconnect();
  // Continues over the reconnected world of the mesh. Collective.
  void reconnect();

  // On rank 0: the step of the checkpoint that is being written; 0 if there is
  // none. On other ranks: 0.
  int64_t writing_steps() const {
    return job_ || (is_root() && are_shards_open_) ? record_.step : 0;
  }
  std::filesystem::path folder_of(int64_t step) const;
  // Whether each rank with a part of the state writes it.
  bool writes_shards() const { return shares_folder_; }
  // Bytes that this rank has sent of its parts to rank 0.
  int64_t sent_bytes() const { return sent_bytes_; }

  // The layers of the whole state, in the order of the file.
  const CheckpointJob::Blocks& blocks() const { return blocks_; }

  // On rank 0: returns each outcome once, as soon as it is available.
  std::vector<CheckpointOutcome> take_outcomes();

 private:
  // A copy of a rank's part in transfer to rank 0.
  struct Transfer {
    at::Tensor message;
    std::unique_ptr<collectives::Work> work;  // nullptr for rank 0's own part
  };

  bool is_root() const { return mesh_.world.rank() == 0; }
  bool gives_its_part() const;
  // Whether each data rank has its own slices of the buffer.
  bool is_divided(const std::string& buffer) const;
  bool all_see_a_file() const;
  void begin_shards(const HostStateSnapshot& own_part);
  void send_parts(const at::Tensor& own_copy);
  void end_shards();
  Answer answer(const std::vector<int64_t>& part_bytes,
                const memory::MemoryRetry& retry);
  void copy_state();
  void finish_copy();
  void write(std::vector<HostStateSnapshot> states);
  void note_outcome();

  const Options options_;
  step::TrainingState& state_;
  collectives::Mesh& mesh_;
  CheckpointJob::Blocks blocks_;
  // nullptr if each rank has the whole state.
  std::unique_ptr<collectives::Communicator> parts_;
  CheckpointRecord record_;             // record of the newest checkpoint
  HostStateSnapshot copy_;              // a copy of the whole state
  std::shared_ptr<StateCopy> copying_;  // nullptr if the copy is complete
  std::vector<Transfer> transfers_;
  int64_t sent_bytes_ = 0;
  bool shares_folder_ = false;
  bool are_shards_open_ = false;        // of a checkpoint without its manifest
  std::shared_ptr<ShardJob> shard_;     // nullptr if this rank writes none
  std::shared_ptr<CheckpointJob> job_;  // nullptr once its outcome is noted
  BackgroundWriter writer_;
  std::vector<CheckpointOutcome> outcomes_;
};

}  // namespace headroom::checkpoint
