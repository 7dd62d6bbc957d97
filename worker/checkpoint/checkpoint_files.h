// The folders checkpoints/step-N, apart from any training.
//
//   state.safetensors   tensors, as they come
//   MANIFEST.json       counters, plan, sizes and XXH3-128 digests of the files
//                       and of itself; renamed into place last
//
// A folder without its manifest does not count. A single byte that differs in
// either file is found.
//
// Threads: any; one writer per folder of checkpoints.
// Errors: reading throws Error naming the file and what is wrong; writing
// throws Error with exit code 5 and leaves nothing behind.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/run_files.h"
#include "worker/weights/safetensors.h"

namespace headroom::checkpoint {

struct StepFolder {
  int64_t step = 0;
  std::filesystem::path path;
  bool is_finished() const;
};

// step-N folders, newest first, finished or not.
std::vector<StepFolder> step_folders(const std::filesystem::path& checkpoints);

// Removes the files of a checkpoint, and the folder if nothing else lies in it.
void remove_step_folder(const std::filesystem::path& folder);

// Returns the text of the manifest, once it and every file that it names have
// been found whole.
std::string read_manifest(const std::filesystem::path& folder);

Error damaged_checkpoint(const std::filesystem::path& file,
                         const std::string& why);

// What a checkpoint has beside its tensors.
struct CheckpointRecord {
  int64_t step = 0;      // committed steps
  std::string counters;  // JSON
  std::string plan;      // JSON
};

// One checkpoint that is being written.
class CheckpointFile {
 public:
  // Throws Error at once where the disk has too little room. Removes what an
  // earlier attempt left.
  CheckpointFile(const std::filesystem::path& checkpoints, int64_t step,
                 std::vector<weights::TensorDescription> tensors);
  // Removes what was not committed.
  ~CheckpointFile();
  CheckpointFile(const CheckpointFile&) = delete;
  CheckpointFile& operator=(const CheckpointFile&) = delete;

  // The next tensor.
  void write(const at::Tensor& tensor) { state_->write(tensor); }
  // Brings it to disk, then removes all but the newest `keep` (and every
  // unfinished older folder).
  void commit(const CheckpointRecord& record, int64_t keep);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t num_bytes() const { return num_bytes_; }  // once committed

 private:
  // Made before the files, destroyed after them.
  struct Folder {
    std::filesystem::path path;
    bool is_kept = false;
    ~Folder();
  };

  std::filesystem::path folder_;
  Folder guard_;
  std::unique_ptr<weights::SafetensorsWriter> state_;
  int64_t num_bytes_ = 0;
};

// Work on a file in which peers take part. After the first failure the rest of
// it is left out, so that nobody waits for this rank, until rethrow().
class FirstFailure {
 public:
  // REQUIRES: no communication in `work`.
  template <typename Work>
  void run(const Work& work) {
    if (failure_) return;
    try {
      work();
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::exception_ptr failure_;
};

}  // namespace headroom::checkpoint
