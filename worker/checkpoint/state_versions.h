// StateVersions: the two newest versions of one rank's part of the state, in
// host memory that is used again.
//
// A commit changes some buffers only (TrainingState::Buffer::Change). Buffers
// of one kind are stored together, twice: a version consists of the newest
// bytes of each kind that are not newer than it. So only what a commit has
// changed is copied and sent.
//
// Threads: one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/step/training_state.h"

namespace headroom::checkpoint {

// Where the parts of a rank's state are in the bytes of each kind.
struct VersionLayout {
  using Change = step::TrainingState::Buffer::Change;
  static constexpr std::array kKinds = {Change::kEach, Change::kBetweenUpdates,
                                        Change::kUpdates};

  struct Part {
    HeldPart place;  // without values
    int64_t size = 0;
    at::ScalarType type = at::kFloat;
    int64_t at = 0;  // offset of the part in its kind's bytes
  };
  struct Kind {
    std::vector<Part> parts;
    int64_t bytes = 0;
  };

  Kind& of(Change change) { return kinds[static_cast<size_t>(change)]; }
  const Kind& of(Change change) const {
    return kinds[static_cast<size_t>(change)];
  }
  int64_t bytes() const;

  std::array<Kind, kKinds.size()> kinds;
};

std::string to_text(const VersionLayout& layout);
VersionLayout layout_from_text(const std::string& text);

class StateVersions {
 public:
  using Change = VersionLayout::Change;
  using Allocate = std::function<at::Tensor(int64_t bytes)>;

  // `allocate` returns a uint8 tensor in host memory.
  StateVersions(VersionLayout layout, Allocate allocate);

  // Begins to replace the bytes of a kind: the caller fills the result before
  // it calls complete(). The version before the newest is lost then, unless the
  // newest is the one of `step` itself.
  const at::Tensor& begin(Change change, int64_t step);
  // As begin(), for bytes that are already filled, in memory of the caller's.
  void hold(Change change, int64_t step, at::Tensor bytes);
  // All buffers of the kind are zero in the version of `step`.
  void begin_zero(Change change, int64_t step);
  // What was begun is the version of counters.committed_steps.
  void complete(const step::TrainingCounters& counters);
  // The bytes of a kind in the newest version; undefined if they are zero.
  at::Tensor newest_bytes(Change change) const;

  // The step of the newest complete version; -1 if there is none.
  int64_t newest_step() const {
    return counters_.empty() ? -1 : counters_.front().committed_steps;
  }
  // REQUIRES: there is one.
  const step::TrainingCounters& newest_counters() const {
    return counters_.front();
  }
  // The complete versions, newest first. They share this object's memory, which
  // is not used for another version while a snapshot exists.
  std::vector<HostStateSnapshot> versions() const;
  const VersionLayout& layout() const { return layout_; }

 private:
  static constexpr int64_t kNever = -1;
  struct Copy {
    int64_t since = kNever;  // first step with these bytes
    bool is_begun = false, is_zero = false;
    at::Tensor bytes;
  };
  Copy& next_copy(Change change, int64_t step);
  // The copy that belongs to the version of `step`; null if it is lost.
  const Copy* copy_at(Change change, int64_t step) const;

  const VersionLayout layout_;
  const Allocate allocate_;
  std::array<std::array<Copy, 2>, VersionLayout::kKinds.size()> copies_;
  std::vector<step::TrainingCounters> counters_;  // newest first, at most two
};

}  // namespace headroom::checkpoint
