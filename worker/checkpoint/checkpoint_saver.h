// CheckpointSaver: checkpoints beside training.
//
//   begin    at a committed step. A whole state is copied to rank 0's host
//            memory while the next step runs, until it commits; where ranks
//            hold parts of it, their newest copies for their buddies
//            (peer_replicas.h) go there while the next step begins
//   settle   before the next step's exchanges: those have come
//   then     a thread of lowest priority writes the files
//
// One at a time: one that is due meanwhile is skipped. Training goes on
// whatever becomes of the files; the outcome says it.
//
// The state asks it before it changes. Its copy stays for the next checkpoint.
// Errors: CommunicationError.
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
#include "worker/checkpoint/state_stream.h"
#include "worker/memory/memory_ladder.h"
#include "worker/step/training_state.h"

namespace headroom::checkpoint {

// The state between two steps, copied while the next one runs.
//
// A state changes at its commit alone, so until then a thread that gets what
// the others leave can copy it, piece by piece. Whoever is about to change the
// state does the rest (TrainingState::before_change). Any
// number of threads may copy at a time.
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

// A checkpoint from a copy of the state in host memory, layer by layer: the
// bytes that checkpoint.h writes of the state itself. Shares the copies, which
// must stay as they are meanwhile. Errors: Error with exit code 5;
// std::bad_alloc, c10::OutOfMemoryError. Whatever was written is removed then.
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
  size_t next_ = 0;  // a place in blocks_
  std::unique_ptr<CheckpointFile> file_;
  at::Tensor layer_, dense_;  // memory for the largest
};

// What became of a checkpoint beside training.
struct CheckpointOutcome {
  int64_t step = 0;
  std::filesystem::path folder;
  int64_t bytes = 0;    // bytes of the checkpoint's files
  std::string failure;  // "" where it is on disk
};

class CheckpointSaver {
 public:
  struct Options {
    std::filesystem::path checkpoints;
    std::string plan_json;
    int64_t keep = 2;
    bool may_copy = true;  // rank 0's host memory has room for the state
  };

  // Collective over the mesh's world.
  CheckpointSaver(Options options, step::TrainingState& state,
                  collectives::Mesh& mesh);
  // What has been copied is written first.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  enum class Answer {
    kBegun,
    kSkipped,  // the one before is still being written
    kNoRoom    // no copy was possible, so nothing was done
  };
  // `own_copy` is the newest copy of this rank's part (PeerReplicas::newest),
  // undefined where it has the whole state. Collective, with the same answer on
  // all ranks.
  Answer begin(const at::Tensor& own_copy,
               const memory::MemoryRetry& retry = {});
  // Returns once what is on its way to rank 0 has come. Collective.
  void settle();
  // Returns when nothing is being written any more. Collective as settle().
  void finish();
  // Lets peers that wait for this rank fail at once; a copy that has not come
  // whole is given up.
  void disconnect();
  // Goes on over the mesh's world, connected anew. Collective.
  void reconnect();

  // Steps of the checkpoint that rank 0 is writing; 0: none, or another rank.
  int64_t writing_steps() const { return job_ ? job_->record().step : 0; }

  // Rank 0 returns each outcome once, as soon as it is known.
  std::vector<CheckpointOutcome> take_outcomes();

 private:
  // A copy of a part that is on its way to rank 0.
  struct Transfer {
    at::Tensor message;
    std::unique_ptr<collectives::Work> work;  // null: it is rank 0's own
  };

  bool is_root() const { return mesh_.world.rank() == 0; }
  bool sends_its_part() const;
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
  std::unique_ptr<collectives::Communicator>
      parts_;                           // null: the state is whole
  CheckpointRecord record_;             // the newest checkpoint's
  HostStateSnapshot copy_;              // a whole state's
  std::shared_ptr<StateCopy> copying_;  // null: it is made
  std::vector<Transfer> transfers_;
  std::shared_ptr<CheckpointJob> job_;  // its outcome is not known yet
  BackgroundWriter writer_;
  std::vector<CheckpointOutcome> outcomes_;
};

}  // namespace headroom::checkpoint
