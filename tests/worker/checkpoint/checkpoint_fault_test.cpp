// Checkpoints under faults. If any byte of the newest checkpoint is damaged,
// the damage is found and the checkpoint before it is loaded. If the writing
// process is killed at any moment, the newest whole checkpoint is the one that
// was being written or the one before it, and loads bit for bit.
//
// The real CheckpointSaver writes, in a process of its own. The suites named
// Slow run with the label `slow`.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <thread>

#include "parallel/base/run_files.h"
#include "parallel/collectives/communicator.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/checkpoint_saver.h"

namespace headroom::checkpoint {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

fs::path fresh_folder() {
  const fs::path folder = fs::path(HEADROOM_BUILD_DIR) / "tests" /
                          ("checkpoint_faults_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

// The committed state of yolov5n on one process; a step number determines all
// its values.
class NumberedState {
 public:
  NumberedState()
      : world_(collectives::make_single_communicator()), mesh_(*world_, {}) {
    step::TrainingStateOptions options;
    options.num_classes = 3;
    options.mesh = &mesh_;
    state_ = std::make_unique<step::TrainingState>(
        layers::load_model_table("yolov5n"), options);
    for (const step::TrainingState::Buffer& buffer : state_->buffers()) {
      base_.push_back(at::arange(buffer.flat->numel(), at::kFloat).sin_());
    }
  }

  void become(int64_t step) {
    const auto buffers = state_->buffers();
    for (size_t i = 0; i < buffers.size(); ++i) {
      buffers[i].flat->copy_(base_[i]).mul_(static_cast<double>(step));
    }
    state_->counters.committed_steps = step;
  }
  // Compares the whole state except the padding between tensors, which is not
  // saved.
  bool is(int64_t step) const {
    const auto buffers = state_->buffers();
    for (size_t i = 0; i < buffers.size(); ++i) {
      const at::Tensor expected = base_[i].mul(static_cast<double>(step));
      for (size_t s = 0; s < buffers[i].flat_buffer->slots().size(); ++s) {
        const auto slot = static_cast<int64_t>(s);
        if (!at::equal(buffers[i].flat_buffer->view(slot, *buffers[i].flat),
                       buffers[i].flat_buffer->view(slot, expected))) {
          return false;
        }
      }
    }
    return state_->counters.committed_steps == step;
  }

  step::TrainingState& state() { return *state_; }
  collectives::Mesh& mesh() { return mesh_; }

 private:
  std::unique_ptr<collectives::Communicator> world_;
  collectives::Mesh mesh_;
  std::unique_ptr<step::TrainingState> state_;
  std::vector<at::Tensor> base_;
};

// --- one byte ---

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path)
      : file_(path, std::ios::binary | std::ios::in | std::ios::out) {}
  // Flips bits of the byte at `offset`; a second call restores it.
  void flip(int64_t offset, int mask) {
    file_.seekg(offset);
    const char byte = static_cast<char>(file_.get() ^ mask);
    file_.seekp(offset);
    file_.put(byte);
    file_.flush();
  }

 private:
  std::fstream file_;
};

void damage(int times) {
  const fs::path folder = fresh_folder();
  NumberedState saved, loaded;
  for (const int64_t step : {4, 8}) {
    saved.become(step);
    save_checkpoint(folder, saved.state(), nullptr, "{}", 2);
  }
  const fs::path newest = folder / "step-8";
  uint64_t header = 0;
  std::ifstream(newest / run_files::kState, std::ios::binary)
      .read(reinterpret_cast<char*>(&header), sizeof header);
  const std::vector<std::pair<const char*, int64_t>> places = {
      {run_files::kState,
       static_cast<int64_t>(fs::file_size(newest / run_files::kState))},
      {run_files::kState, static_cast<int64_t>(header + sizeof header)},
      {run_files::kManifest,
       static_cast<int64_t>(fs::file_size(newest / run_files::kManifest))}};
  std::mt19937_64 random(20261122);
  int found = 0;
  for (int i = 0; i < times; ++i) {
    // Of five damaged bytes, three are anywhere in the state's file, one is in
    // the header of that file, and one is in the manifest.
    const auto& [name, size] = places[static_cast<size_t>(
        std::max<int64_t>(0, static_cast<int64_t>(random() % 5) - 2))];
    const auto offset =
        static_cast<int64_t>(random() % static_cast<uint64_t>(size));
    const int mask = 1 + static_cast<int>(random() % 255);
    SCOPED_TRACE(std::string(name) + " byte " + std::to_string(offset) +
                 " mask " + std::to_string(mask));
    OpenFile(newest / name).flip(offset, mask);
    loaded.become(1);
    const LoadedCheckpoint result =
        load_newest_checkpoint(folder, loaded.state(), nullptr);
    EXPECT_EQ(result.folder, folder / "step-4");
    ASSERT_EQ(result.damaged.size(), 1u);
    EXPECT_NE(result.damaged[0].find(name), std::string::npos)
        << result.damaged[0];
    EXPECT_TRUE(loaded.is(4));
    found += result.folder == folder / "step-4" ? 1 : 0;
    fs::rename(folder / "step-8.damaged", newest);
    OpenFile(newest / name).flip(offset, mask);
  }
  std::printf("%d of %d damaged bytes found\n", found, times);
  EXPECT_EQ(load_newest_checkpoint(folder, loaded.state(), nullptr).folder,
            newest);
  EXPECT_TRUE(loaded.is(8));
  fs::remove_all(folder);
}

TEST(CheckpointFaults, ADamagedByteIsFound) { damage(20); }
TEST(Slow, EveryDamagedByteIsFound) { damage(500); }

// --- killed during writing ---

// The steps whose checkpoints were begun and done; shared by the writing
// process and the process that kills it.
struct Written {
  std::atomic<int64_t> begun{0};
  std::atomic<int64_t> done{0};
};

class SharedWritten {
 public:
  SharedWritten()
      : memory_(::mmap(nullptr, sizeof(Written), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        written_(new (memory_) Written) {}
  ~SharedWritten() { ::munmap(memory_, sizeof(Written)); }
  SharedWritten(const SharedWritten&) = delete;
  SharedWritten& operator=(const SharedWritten&) = delete;
  Written* operator->() { return written_; }
  Written& operator*() { return *written_; }

 private:
  void* memory_;
  Written* written_;
};

// Writes one checkpoint after the other, until the process is killed.
[[noreturn]] void write_for_good(const fs::path& folder, NumberedState& state,
                                 int64_t first, Written& written) {
  CheckpointSaver saver({folder, "{}", 2, true}, state.state(), state.mesh());
  for (int64_t step = first;; ++step) {
    state.become(step);
    written.begun = step;
    if (saver.begin({}) != CheckpointSaver::Answer::kBegun) _exit(3);
    if (step % 2 == 0) saver.finish();
    for (;;) {
      const auto outcomes = saver.take_outcomes();
      if (outcomes.empty()) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        continue;
      }
      if (!outcomes.front().failure.empty()) _exit(4);
      break;
    }
    written.done = step;
  }
}

void kill_at_random(int times) {
  const fs::path folder = fresh_folder();
  NumberedState state;
  SharedWritten written;
  std::mt19937_64 random(20261122);
  double longest = 0.1;  // seconds that one checkpoint took
  int behind = 0, unfinished = 0;
  int64_t newest = 0;
  for (int i = 0; i < times; ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    written->begun = newest;
    written->done = newest;
    const pid_t child = ::fork();
    if (child == 0) write_for_good(folder, state, newest + 1, *written);
    ASSERT_GT(child, 0);
    // The process is killed while it writes its second checkpoint, or later.
    const Clock::time_point start = Clock::now();
    while (written->done == newest &&
           Clock::now() - start < std::chrono::seconds(60)) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    ASSERT_GT(written->done, newest) << "it does not write";
    longest = std::clamp(
        std::chrono::duration<double>(Clock::now() - start).count(), 0.02, 1.0);
    std::this_thread::sleep_for(std::chrono::duration<double>(
        longest * static_cast<double>(random() % 10'000) / 10'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;

    const int64_t begun = written->begun;
    for (const StepFolder& step : step_folders(folder)) {
      unfinished += step.is_finished() ? 0 : 1;
    }
    const LoadedCheckpoint result =
        load_newest_checkpoint(folder, state.state(), nullptr);
    newest = state.state().counters.committed_steps;
    EXPECT_GE(newest, written->done);
    EXPECT_GE(newest, begun - 1);
    EXPECT_TRUE(state.is(newest));
    behind += newest < begun ? 1 : 0;
    // Only the checkpoint that was being written may be refused.
    EXPECT_LE(result.damaged.size(), 1u);
    newest = begun;  // the next writer uses larger numbers
  }
  std::printf(
      "%d kills: the newest checkpoint whole and %d times one behind, %d "
      "unfinished folders\n",
      times, behind, unfinished);
  EXPECT_GT(behind, 0);
  fs::remove_all(folder);
}

TEST(CheckpointFaults, AKilledWriterLeavesTheOneBefore) { kill_at_random(10); }
TEST(Slow, AWriterKilledAtTwoHundredMoments) { kill_at_random(200); }

}  // namespace
}  // namespace headroom::checkpoint

// The tests fork, so LibTorch must not have started any thread.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  at::set_num_threads(1);
  return RUN_ALL_TESTS();
}
