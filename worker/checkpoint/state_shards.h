// The tensors of a checkpoint in files of the ranks that have them.
//
//   shard-R.safetensors   ranges of layers of flat buffers, named
//                         "<buffer>/<layer>/<begin>", as rank R has them
//   its metadata          "layers", only in the shard of rank 0: where the
//                         tensors are in these layers (StateStream::Block)
//
// So no rank needs another's bytes to write, and a reader finds each tensor
// under its name, whatever its own layout. All ranks must share the folder.
//
// Threads: a job runs on one thread at a time; abandon() may be called from
// any. Errors: as checkpoint_files.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/checkpoint/background_writer.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/checkpoint/state_stream.h"
#include "worker/weights/safetensors.h"

namespace headroom::checkpoint {

// Writes the parts of a rank into its shard. Removes the file unless keep() is
// called.
class ShardJob final : public BackgroundWriter::Job {
 public:
  // `blocks`: of the whole state, for the shard of rank 0; else empty.
  ShardJob(std::filesystem::path folder, int rank, std::vector<HeldPart> parts,
           const std::vector<StateStream::Block>& blocks);
  ~ShardJob() override;

  bool advance() override;
  // The next piece fails.
  void abandon() { is_abandoned_ = true; }
  // The file after the last piece.
  const StoredFile& file() const { return file_; }
  void keep() { is_kept_ = true; }

 private:
  bool advance_or_throw();
  void begin();

  const std::filesystem::path folder_;
  std::vector<HeldPart> parts_;
  std::map<std::string, std::string> metadata_;
  StoredFile file_;
  std::unique_ptr<weights::SafetensorsWriter> writer_;
  size_t next_ = 0;
  std::atomic<bool> is_abandoned_ = false;
  bool is_kept_ = false;
};

// Reads tensors by name from the files of a checkpoint: one file, or shards.
class StateReader {
 public:
  // `names`: of the files. Throws Error if shards lack a part of a tensor.
  StateReader(const std::filesystem::path& folder,
              const std::vector<std::string>& names);

  const std::vector<weights::TensorDescription>& tensors() const {
    return tensors_;
  }
  // A file to name in errors.
  const std::filesystem::path& file() const { return first_file_; }
  // REQUIRES: one of tensors(). Cheapest in their order.
  at::Tensor read(const std::string& name);

 private:
  struct Range {
    int64_t begin = 0;
    weights::SafetensorsReader* reader = nullptr;
    const weights::SafetensorsEntry* entry = nullptr;
  };
  struct Place {
    size_t block = 0, entry = 0;
  };
  void add_whole(weights::SafetensorsReader& reader);
  void add_ranges(weights::SafetensorsReader& reader);
  void require_all(const std::filesystem::path& folder) const;
  const std::vector<Range>& ranges_of(const StateStream::Block& block) const;
  const at::Tensor& layer_of(size_t block);

  std::filesystem::path first_file_;
  std::vector<std::unique_ptr<weights::SafetensorsReader>> readers_;
  std::vector<weights::TensorDescription> tensors_;
  // A single file.
  std::map<std::string, const weights::SafetensorsEntry*> entries_;
  // Shards: each buffer's layers, and the ranges in order of their beginning.
  std::vector<StateStream::Block> blocks_;
  std::map<std::string, std::vector<Range>> ranges_;
  std::map<std::string, Place> places_;
  size_t newest_ = 0;  // the block in layer_
  at::Tensor layer_;
};

}  // namespace headroom::checkpoint
