// The folders checkpoints/step-N as files, independent of training.
//
//   state.safetensors   the tensors, in the order in which they are written
//   or shard-R.safetensors for each rank R that wrote its own part of them
//                       (state_shards.h)
//   MANIFEST.json       counters, plan, sizes of the files, XXH3-128 digests of
//                       the files and of the manifest; renamed into place last
//
// A folder without its manifest does not count as a checkpoint. Reading detects
// a change of a single byte in either file.
//
// Threads: any, with one writer for each file. Errors: reading
// throws Error with the file and its fault; writing throws Error with exit code
// 5 and leaves no file behind.
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

// All step-N folders, newest first, finished or not.
std::vector<StepFolder> step_folders(const std::filesystem::path& checkpoints);

// Removes a checkpoint's files, and then the folder if it is empty.
void remove_step_folder(const std::filesystem::path& folder);

// Verifies the manifest and every file that it names, then returns the
// manifest's text. names_in() returns the names of these files.
std::string read_manifest(const std::filesystem::path& folder);
std::vector<std::string> names_in(const std::string& manifest);

Error damaged_checkpoint(const std::filesystem::path& file,
                         const std::string& why);

// The content of a checkpoint except its tensors.
struct CheckpointRecord {
  int64_t step = 0;      // committed steps
  std::string counters;  // JSON
  std::string plan;      // JSON
};

// A complete file of a checkpoint.
struct StoredFile {
  std::string name;
  int64_t bytes = 0;
  std::string digest;
};

// "shard-3.safetensors"
std::string shard_name(int rank);
bool is_shard_name(const std::string& name);

// Throws Error if the disk of `folder` has too little space for the tensors.
void require_room(const std::filesystem::path& folder,
                  const std::vector<weights::TensorDescription>& tensors);

// Makes a checkpoint of the files in `folder`: writes the manifest, then
// removes all but the newest `keep` checkpoints, and every older folder that is
// not finished. Returns the bytes of all files.
int64_t commit_manifest(const std::filesystem::path& folder,
                        const CheckpointRecord& record,
                        const std::vector<StoredFile>& files, int64_t keep);

// A checkpoint that is being written as one file.
class CheckpointFile {
 public:
  // Removes the files of an earlier attempt. Throws Error if the disk has too
  // little space.
  CheckpointFile(const std::filesystem::path& checkpoints, int64_t step,
                 std::vector<weights::TensorDescription> tensors);
  // Removes the folder if it has no manifest.
  ~CheckpointFile();
  CheckpointFile(const CheckpointFile&) = delete;
  CheckpointFile& operator=(const CheckpointFile&) = delete;

  void write(const at::Tensor& tensor) { state_->write(tensor); }
  // Writes everything to disk, and ends as commit_manifest().
  void commit(const CheckpointRecord& record, int64_t keep);

  const std::filesystem::path& folder() const { return folder_; }
  int64_t num_bytes() const { return num_bytes_; }  // set by commit()

 private:
  // Declared before the files, so that the folder is removed after the files
  // are closed.
  struct Folder {
    std::filesystem::path path;
    ~Folder();
  };

  std::filesystem::path folder_;
  Folder guard_;
  std::unique_ptr<weights::SafetensorsWriter> state_;
  int64_t num_bytes_ = 0;
};

// Runs file work between collective operations. After a failure the remaining
// file work is skipped, so that this rank still takes part in the collectives
// and no peer waits for it. rethrow() then reports the failure.
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
