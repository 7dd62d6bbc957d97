#include "worker/checkpoint/orphaned_state.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "parallel/activations/counting_allocator.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/state_restore.h"

namespace headroom::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kParts = "parts";
constexpr const char* kLock = "lock";
constexpr const char* kRankPrefix = "rank-";
constexpr std::chrono::milliseconds kLook{100};
// A checkpoint whose bytes did not change for this time is given up.
constexpr std::chrono::seconds kStillWriting{2};

int64_t newest_step(const std::vector<HostStateSnapshot>& held) {
  int64_t newest = 0;
  for (const HostStateSnapshot& state : held) {
    newest = std::max(newest, state.counters.committed_steps);
  }
  return newest;
}

// Returns the snapshots of the newest complete state in `held`. The state must
// have more than `at_least` steps. Returns an empty list if there is none.
std::vector<HostStateSnapshot> newest_whole(
    const OrphanedState& state, const std::vector<HostStateSnapshot>& held,
    int64_t at_least) {
  std::vector<HeldRange> needed;
  for (const StateStream::Block& block : *state.blocks) {
    needed.push_back({block.name, block.layer, 0, block.size});
  }
  std::vector<StateOffer> offers;
  for (size_t index = 0; index < held.size(); ++index) {
    StateOffer offer;
    offer.index = static_cast<int64_t>(index);
    offer.step = held[index].counters.committed_steps;
    if (offer.step <= at_least) continue;
    for (const HeldPart& part : held[index].parts) {
      offer.ranges.push_back(
          {part.buffer, part.layer, part.begin, part.values.numel()});
    }
    offers.push_back(std::move(offer));
  }
  std::vector<HostStateSnapshot> chosen;
  const auto choice = choose_state(needed, offers);
  if (!choice) return chosen;
  for (const HostStateSnapshot& snapshot : held) {
    if (snapshot.counters.committed_steps == choice->step) {
      chosen.push_back(snapshot);
    }
  }
  return chosen;
}

// A file of parts: each message of pack() after its size.
void write_parts(const fs::path& file,
                 const std::vector<HostStateSnapshot>& held) {
  AtomicFile parts(file);
  for (const HostStateSnapshot& snapshot : held) {
    const at::Tensor message = pack(snapshot);
    const int64_t bytes = message.numel();
    parts.write(&bytes, sizeof bytes);
    parts.write(message.const_data_ptr(), static_cast<size_t>(bytes));
  }
  parts.commit();
}

// Adds nothing if another worker removes the file meanwhile.
void read_parts(const fs::path& path, std::vector<HostStateSnapshot>& held) {
  const RegularFile file(path, Links::kRefused);
  if (!file.is_open()) return;
  const activations::CountingAllocator::HostMemory host;
  uint64_t at = 0;
  int64_t bytes = 0;
  while (at + sizeof bytes <= file.size()) {
    const auto size = file.read(at, sizeof bytes);
    if (!size || size->size() != sizeof bytes) return;
    std::memcpy(&bytes, size->data(), sizeof bytes);
    at += sizeof bytes;
    if (bytes < 0 || file.size() - at < static_cast<uint64_t>(bytes)) return;
    at::Tensor message = at::empty({bytes}, at::kByte);
    auto* const data = static_cast<char*>(message.mutable_data_ptr());
    for (int64_t done = 0; done < bytes;) {
      const ssize_t count = ::pread(
          file.descriptor(), data + done, static_cast<size_t>(bytes - done),
          static_cast<off_t>(at) + static_cast<off_t>(done));
      if (count <= 0) return;
      done += count;
    }
    at += static_cast<uint64_t>(bytes);
    held.push_back(unpack(message));
  }
}

// This process's file of parts and the lock beside it.
class Parts {
 public:
  Parts(const fs::path& checkpoints, int rank)
      : folder_(checkpoints / kParts),
        own_(folder_ / cat(kRankPrefix, rank)),
        lock_file_(folder_ / kLock) {}
  // Removes its own file, and lock and folder if no other process uses them.
  ~Parts() {
    std::error_code error;
    fs::remove(own_, error);
    if (take_lock()) fs::remove(lock_file_, error);
    give_lock_back();
    fs::remove(folder_, error);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // If a process ends, the kernel releases its lock.
  bool take_lock() {
    lock_ = open_locked(lock_file_, O_CREAT | O_NOFOLLOW);
    return lock_ >= 0;
  }
  void give_lock_back() {
    if (lock_ >= 0) ::close(lock_);
    lock_ = -1;
  }
  void make_folder() const {
    std::error_code error;
    fs::create_directories(folder_, error);
  }
  const fs::path& own() const { return own_; }
  std::vector<fs::path> others() const {
    std::vector<fs::path> files;
    std::error_code error;
    for (const fs::path& file : entries_of(folder_, error)) {
      const std::string name = file.filename().string();
      if (name.starts_with(kRankPrefix) && !name.ends_with(kPartialSuffix) &&
          file != own_) {
        files.push_back(file);
      }
    }
    return files;
  }

 private:
  const fs::path folder_, own_, lock_file_;
  int lock_ = -1;
};

// Whether another process is writing this checkpoint: if rank 0 is not lost, it
// may have begun this checkpoint before the coordinator was lost.
bool is_being_written(const fs::path& checkpoints, int64_t step) {
  for (const StepFolder& folder : step_folders(checkpoints)) {
    std::error_code error;
    if (folder.step != step || folder.is_finished()) continue;
    const auto newest =
        fs::last_write_time(folder.path / run_files::kState, error);
    if (error) return false;
    return fs::file_time_type::clock::now() - newest < kStillWriting;
  }
  return false;
}

// Writes the newest complete state that is newer than the newest checkpoint.
// Returns its step and last line of steps.jsonl; step 0 if no such state is
// complete.
OrphanedSave write_newest(const OrphanedState& state, const Parts& parts,
                          const std::vector<HostStateSnapshot>& held) {
  const int64_t saved = newest_checkpoint(state.checkpoints);
  std::vector<HostStateSnapshot> whole = newest_whole(state, held, saved);
  if (whole.empty()) {
    std::vector<HostStateSnapshot> all = held;
    for (const fs::path& file : parts.others()) read_parts(file, all);
    whole = newest_whole(state, all, saved);
  }
  if (whole.empty()) return {};
  const HostStateSnapshot& first = whole.front();
  OrphanedSave written{first.counters.committed_steps, ""};
  for (const HostStateSnapshot& snapshot : whole) {
    if (written.newest_line == "") written.newest_line = snapshot.newest_line;
  }
  CheckpointJob job(
      state.checkpoints,
      {written.step, counters_to_text(first.counters), state.plan_json},
      state.keep, state.blocks, std::move(whole));
  while (job.advance()) {
  }
  return written;
}

}  // namespace

OrphanedSave save_orphaned(const OrphanedState& state,
                           const std::vector<HostStateSnapshot>& held,
                           std::chrono::milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  const int64_t wanted = newest_step(held);
  Parts parts(state.checkpoints, state.rank);
  parts.make_folder();
  OrphanedSave result{newest_checkpoint(state.checkpoints), std::nullopt};
  // A process that holds the whole state can write it without other processes.
  // They can wait for that checkpoint, so they do not need its parts.
  if (result.step < wanted && newest_whole(state, held, 0).empty()) {
    write_parts(parts.own(), held);
  }
  OrphanedSave written;
  bool has_tried = false;
  while (result.step < wanted && Clock::now() < end) {
    // One try per process is enough: the last process that writes its file
    // finds the files of all others.
    if (!has_tried && !is_being_written(state.checkpoints, wanted) &&
        parts.take_lock()) {
      has_tried = true;
      written = write_newest(state, parts, held);
      parts.give_lock_back();
    } else {
      std::this_thread::sleep_for(kLook);
    }
    result.step = newest_checkpoint(state.checkpoints);
  }
  // Another process may have written a newer checkpoint meanwhile.
  return written.step == result.step ? written : result;
}

void remove_orphaned_parts(const std::filesystem::path& checkpoints) {
  std::error_code error;
  const fs::path folder = checkpoints / kParts;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return;
  for (const fs::path& file : entries_of(folder, error)) {
    const std::string name = file.filename().string();
    if (name == kLock || name.starts_with(kRankPrefix)) fs::remove(file, error);
  }
  fs::remove(folder, error);
}

}  // namespace headroom::checkpoint
