// Checkpoints that are written in the background of training. Under any layout
// their files equal those of a checkpoint for which training waits. Other tests
// cover a full disk, too little memory, and a checkpoint that is due before the
// previous one is written.
#include "worker/checkpoint/checkpoint_saver.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>

#include "parallel/base/atomic_file.h"
#include "parallel/base/run_files.h"
#include "parallel/collectives/communicator.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/step/zero_run.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/peer_replicas.h"

namespace headroom::checkpoint {
namespace {

namespace fs = std::filesystem;
using Answer = CheckpointSaver::Answer;

class TestJob : public BackgroundWriter::Job {
 public:
  explicit TestJob(std::function<bool()> advance)
      : advance_(std::move(advance)) {}
  bool advance() override { return advance_(); }

 private:
  std::function<bool()> advance_;
};

std::shared_ptr<TestJob> job(std::function<bool()> advance) {
  return std::make_shared<TestJob>(std::move(advance));
}

TEST(BackgroundWriter, RunsAJobToItsEndOnAnotherThread) {
  BackgroundWriter writer;
  std::promise<std::thread::id> done;
  int pieces = 0;
  writer.start(job([&] {
    if (++pieces < 3) return true;
    done.set_value(std::this_thread::get_id());
    return false;
  }));
  EXPECT_NE(done.get_future().get(), std::this_thread::get_id());
  writer.finish();
  EXPECT_EQ(pieces, 3);
  EXPECT_FALSE(writer.is_busy());
  EXPECT_EQ(writer.error(), nullptr);
}

TEST(BackgroundWriter, RunsAtTheLowestPriority) {
  BackgroundWriter writer;
  int nice = 0;
  writer.start(job([&] {
    nice = ::getpriority(PRIO_PROCESS, 0);
    return false;
  }));
  while (writer.is_busy()) std::this_thread::yield();
  EXPECT_EQ(nice, 19);
  EXPECT_LT(::getpriority(PRIO_PROCESS, 0), 19);
}

// A thread of the lowest priority may never get processor time, so the thread
// that waits for the job runs the rest of the job.
TEST(BackgroundWriter, TheWaitingThreadRunsTheRest) {
  BackgroundWriter writer;
  std::promise<void> begun, released;
  std::shared_future<void> release = released.get_future().share();
  std::vector<std::thread::id> threads;
  writer.start(job([&] {
    threads.push_back(std::this_thread::get_id());
    if (threads.size() == 1) {
      begun.set_value();
      release.wait();
    }
    return threads.size() < 3;
  }));
  begun.get_future().wait();
  EXPECT_TRUE(writer.is_busy());
  std::thread waiting([&] { writer.finish(); });
  const std::thread::id waiter = waiting.get_id();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  released.set_value();
  waiting.join();
  ASSERT_EQ(threads.size(), 3u);
  EXPECT_NE(threads[0], waiter);
  EXPECT_EQ(threads[1], waiter);
  EXPECT_EQ(threads[2], waiter);
}

TEST(BackgroundWriter, AFailureEndsTheJobAlone) {
  BackgroundWriter writer;
  writer.start(job([]() -> bool { throw Error("disk", "is full", ""); }));
  writer.finish();
  EXPECT_NE(writer.error(), nullptr);
  int pieces = 0;
  writer.start(job([&] { return ++pieces < 2; }));
  writer.finish();
  EXPECT_EQ(writer.error(), nullptr);
  EXPECT_EQ(pieces, 2);
}

void fill(step::TrainingState& state, int64_t step) {
  state.before_change();
  int64_t number = 0;
  for (const step::TrainingState::Buffer& buffer : state.buffers()) {
    for (size_t slot = 0; slot < buffer.flat_buffer->slots().size(); ++slot) {
      const at::Tensor view =
          buffer.flat_buffer->view(static_cast<int64_t>(slot), *buffer.flat);
      view.copy_(at::sin(at::arange(view.numel(), at::kDouble) +
                         static_cast<double>(10 * step + number++))
                     .view(view.sizes()));
    }
  }
  state.counters.committed_steps = step;
}

class CheckpointSavers : public ::testing::Test {
 protected:
  CheckpointSavers() { fs::remove_all(folder_); }
  ~CheckpointSavers() override { fs::remove_all(folder_); }

  CheckpointSaver::Options options(const std::string& name = "beside") const {
    return {folder_ / name, "{}", 2, true};
  }
  static std::string digest(const fs::path& folder, const char* file) {
    return file_digest(folder / file);
  }
  static void expect_same_files(const fs::path& a, const fs::path& b) {
    for (const char* file : {run_files::kState, run_files::kManifest}) {
      EXPECT_EQ(digest(a, file), digest(b, file)) << file;
    }
  }

  const fs::path folder_ = fs::path(HEADROOM_BUILD_DIR) / "tests" /
                           ("checkpoint_saver_" + std::to_string(::getpid()));
};

// One process with the whole state.
struct Alone {
  explicit Alone(const CheckpointSaver::Options& options)
      : world(collectives::make_single_communicator()),
        mesh(*world, {}),
        state(model::tiny_table(), step::zero_options({}, &mesh)),
        saver(options, state, mesh) {}

  std::vector<CheckpointOutcome> save(int64_t step) {
    fill(state, step);
    EXPECT_EQ(saver.begin({}), Answer::kBegun);
    saver.finish();
    return saver.take_outcomes();
  }

  std::unique_ptr<collectives::Communicator> world;
  collectives::Mesh mesh;
  step::TrainingState state;
  CheckpointSaver saver;
};

TEST_F(CheckpointSavers, WriteTheStateAsItWasWhenTheyBegan) {
  Alone run(options());
  fill(run.state, 6);
  save_checkpoint(folder_ / "waited-for", run.state, nullptr, "{}", 2);
  ASSERT_EQ(run.saver.begin({}), Answer::kBegun);
  fill(run.state, 7);  // training goes on
  run.saver.finish();
  const auto outcomes = run.saver.take_outcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].failure, "");
  EXPECT_EQ(outcomes[0].step, 6);
  EXPECT_EQ(outcomes[0].folder, folder_ / "beside/step-6");
  expect_same_files(folder_ / "beside/step-6", folder_ / "waited-for/step-6");
  EXPECT_EQ(
      static_cast<uintmax_t>(outcomes[0].bytes),
      fs::file_size(folder_ / "beside/step-6" / run_files::kState) +
          fs::file_size(folder_ / "beside/step-6" / run_files::kManifest));
  EXPECT_TRUE(run.saver.take_outcomes().empty());
}

// The state must notify the saver before each change, because the saver may
// still be copying the state.
TEST_F(CheckpointSavers, AStateReportsEachChangeBeforeIt) {
  Alone run(options());
  const std::vector<std::function<void()>> changes = {
      [&] { run.state.start_epoch(); }, [&] { run.state.reset_average(); },
      [&] { step::run_step({}, run.state, *run.world, 6); }};
  for (const auto& change : changes) {
    fill(run.state, 6);
    const auto before = step::whole_state(run.state, nullptr);
    const auto is_as_before = [&] {
      for (const auto& [name, values] : step::whole_state(run.state, nullptr)) {
        if (!at::equal(values, before.at(name))) return false;
      }
      return true;
    };
    int told = 0;
    run.state.set_before_change([&] {
      ++told;
      EXPECT_TRUE(is_as_before());
    });
    change();
    EXPECT_EQ(told, 1);
    EXPECT_FALSE(is_as_before());
    run.state.set_before_change(nullptr);
  }
}

TEST_F(CheckpointSavers, KeepTheNewest) {
  Alone run(options());
  for (const int64_t step : {1, 2, 3}) run.save(step);
  EXPECT_FALSE(fs::exists(folder_ / "beside/step-1"));
  EXPECT_EQ(newest_checkpoint(folder_ / "beside"), 3);
  EXPECT_TRUE(fs::exists(folder_ / "beside/step-2"));
}

TEST_F(CheckpointSavers, OneThatIsDueWhileOneIsWrittenIsSkipped) {
  Alone run(options());
  int64_t step = 0, begun = 0, skipped = 0;
  // The second begin() follows the first at once, so the first checkpoint is
  // usually still being written.
  while (skipped == 0 && step < 200) {
    fill(run.state, ++step);
    ++(run.saver.begin({}) == Answer::kBegun ? begun : skipped);
    ++(run.saver.begin({}) == Answer::kBegun ? begun : skipped);
  }
  run.saver.finish();
  EXPECT_GT(skipped, 0);
  EXPECT_EQ(run.saver.take_outcomes().size(), static_cast<size_t>(begun));
  EXPECT_EQ(newest_checkpoint(folder_ / "beside"), step);
}

TEST_F(CheckpointSavers, WithoutRoomForACopyNothingIsBegun) {
  CheckpointSaver::Options no_room = options();
  no_room.may_copy = false;
  Alone run(no_room);
  fill(run.state, 6);
  EXPECT_EQ(run.saver.begin({}), Answer::kNoRoom);
  run.saver.finish();
  EXPECT_TRUE(run.saver.take_outcomes().empty());
}

TEST_F(CheckpointSavers, AFullDiskLosesOnlyTheNewOne) {
  Alone run(options());
  ASSERT_EQ(run.save(4).at(0).failure, "");
  const auto bytes = fs::file_size(folder_ / "beside/step-4/state.safetensors");
  for (const rlim_t limit : {rlim_t{10}, bytes / 2, bytes - 1}) {
    std::vector<CheckpointOutcome> outcomes;
    {
      const FileSizeLimit full(limit);
      outcomes = run.save(5);
    }
    ASSERT_EQ(outcomes.size(), 1u);
    EXPECT_EQ(outcomes[0].step, 5);
    EXPECT_NE(outcomes[0].failure.find("state.safetensors cannot be written"),
              std::string::npos)
        << outcomes[0].failure;
    EXPECT_FALSE(fs::exists(folder_ / "beside/step-5"));
    EXPECT_EQ(newest_checkpoint(folder_ / "beside"), 4);
  }
  EXPECT_EQ(run.save(6).at(0).failure, "");
  Alone loaded(options("other"));
  load_newest_checkpoint(folder_ / "beside", loaded.state, nullptr);
  EXPECT_EQ(loaded.state.counters.committed_steps, 6);
}

struct SaverLayout {
  std::string name;
  plan::ParallelLayout layout;
  int zero_stage = 0;
  bool shares_folder = true;
};

// A rank of a run that saves.
struct SavingRank {
  SavingRank(const SaverLayout& one, CheckpointSaver::Options options,
             collectives::Communicator& world)
      : mesh(world, one.layout),
        state(model::tiny_table(), state_options(one)),
        saver(own_folder(one, std::move(options)), state, mesh) {}

  step::TrainingStateOptions state_options(const SaverLayout& one) {
    step::TrainingStateOptions mine = step::zero_options({}, &mesh);
    mine.seed = 3;
    mine.zero_stage = one.zero_stage;
    if (one.layout.pipeline_parallel_size > 1) {
      mine.layers = mesh.is_first_stage() ? model::LayerGraph::LayerRange{0, 4}
                                          : model::LayerGraph::LayerRange{4, 9};
    }
    return mine;
  }
  CheckpointSaver::Options own_folder(const SaverLayout& one,
                                      CheckpointSaver::Options options) const {
    if (!one.shares_folder) {
      options.checkpoints += "-of-" + std::to_string(mesh.world.rank());
    }
    return options;
  }
  // Makes the copies that a run makes after a commit.
  Answer begin() {
    if (!state.is_whole() && !buddies) {
      buddies = std::make_unique<PeerReplicas>(mesh.world, 1, state);
    }
    if (buddies) buddies->after_commit();
    return saver.begin(buddies ? buddies->newest() : HostStateSnapshot());
  }
  // The state changes, and copies of it are replaced.
  void go_on() {
    state.before_change();
    for (const step::TrainingState::Buffer& buffer : state.buffers()) {
      buffer.flat->zero_();
    }
    for (int step = 0; step < 2 && buddies; ++step) {
      ++state.counters.committed_steps;
      state.counters.last_optimizer_step =
          state.counters.committed_steps - 1 - step;
      buddies->after_commit();
    }
    if (buddies) buddies->settle();
  }

  collectives::Mesh mesh;
  step::TrainingState state;
  CheckpointSaver saver;
  std::unique_ptr<PeerReplicas> buddies;
};

// Ranks with parts of the state write these in place, or send them to rank 0 if
// they do not share its folder. Every layout reads the same state.
TEST_F(CheckpointSavers, AnyLayoutStoresTheSameState) {
  {
    Alone run(options());
    fill(run.state, 6);
    save_checkpoint(folder_ / "one", run.state, nullptr, "{}", 2);
  }
  const std::vector<SaverLayout> layouts = {
      {"data2", {.data_parallel_size = 2}, 0},
      {"zero1", {.data_parallel_size = 2}, 1},
      {"zero1_apart", {.data_parallel_size = 2}, 1, false},
      {"zero3", {.data_parallel_size = 3}, 3},
      {"zero3_apart", {.data_parallel_size = 3}, 3, false},
      {"pipeline2", {.pipeline_parallel_size = 2}, 0},
      {"pipeline2_apart", {.pipeline_parallel_size = 2}, 0, false},
      {"all",
       {.pipeline_parallel_size = 2,
        .data_parallel_size = 2,
        .spatial_parallel_size = 2},
       3},
      {"all_undivided",
       {.pipeline_parallel_size = 2,
        .data_parallel_size = 2,
        .spatial_parallel_size = 2},
       0}};
  for (const SaverLayout& one : layouts) {
    SCOPED_TRACE(one.name);
    std::string written = one.name;
    run_ranks(one.layout.world_size(), [&](int rank,
                                           collectives::Communicator& world) {
      SavingRank run(one, options(one.name), world);
      load_newest_checkpoint(folder_ / "one", run.state, &run.mesh);
      const bool is_split = !run.state.is_whole();
      EXPECT_EQ(run.saver.writes_shards(), is_split && one.shares_folder);
      EXPECT_EQ(run.begin(), Answer::kBegun);
      run.go_on();
      run.saver.finish();
      EXPECT_EQ(run.saver.sent_bytes() > 0, rank > 0 && !one.shares_folder);
      const auto outcomes = run.saver.take_outcomes();
      ASSERT_EQ(outcomes.size(), rank == 0 ? 1u : 0u);
      if (rank > 0) return;
      EXPECT_EQ(outcomes[0].failure, "");
      EXPECT_EQ(outcomes[0].step, 6);
      written = outcomes[0].folder.parent_path().filename().string();
      int64_t bytes = 0;
      for (const auto& file : fs::directory_iterator(outcomes[0].folder)) {
        bytes += static_cast<int64_t>(file.file_size());
      }
      EXPECT_EQ(outcomes[0].bytes, bytes);
    });
    Alone loaded(options("other"));
    load_newest_checkpoint(folder_ / written, loaded.state, nullptr);
    save_checkpoint(folder_ / (written + "-read"), loaded.state, nullptr, "{}",
                    2);
    expect_same_files(folder_ / "one/step-6",
                      folder_ / (written + "-read/step-6"));
  }
}

// Two ranks of ZeRO 1 save step 4, then `save` with step 5.
template <typename Save>
void save_shards_twice(const CheckpointSaver::Options& options,
                       const Save& save) {
  const SaverLayout zero = {"", {.data_parallel_size = 2}, 1};
  run_ranks(2, [&](int rank, collectives::Communicator& world) {
    SavingRank run(zero, options, world);
    run.state.counters.committed_steps = 4;
    ASSERT_EQ(run.begin(), Answer::kBegun);
    run.saver.finish();
    EXPECT_EQ(run.saver.take_outcomes().size(), rank == 0 ? 1u : 0u);
    run.state.counters.committed_steps = 5;
    save(run, rank);
  });
}

TEST_F(CheckpointSavers, AFullDiskLosesOnlyTheNewShards) {
  std::vector<CheckpointOutcome> failed, later;
  save_shards_twice(options(), [&](SavingRank& run, int rank) {
    const auto shard = folder_ / "beside/step-4/shard-1.safetensors";
    const auto limit = fs::file_size(shard) / 2;
    run.mesh.world.barrier();
    {
      std::optional<FileSizeLimit> full;  // of the process, so of both ranks
      if (rank == 0) full.emplace(limit);
      run.mesh.world.barrier();
      EXPECT_EQ(run.begin(), Answer::kBegun);
      run.saver.finish();
      run.mesh.world.barrier();
    }
    run.mesh.world.barrier();
    if (rank == 0) failed = run.saver.take_outcomes();
    if (rank == 0) {
      EXPECT_FALSE(fs::exists(folder_ / "beside/step-5"));
      EXPECT_EQ(newest_checkpoint(folder_ / "beside"), 4);
    }
    run.state.counters.committed_steps = 6;
    EXPECT_EQ(run.begin(), Answer::kBegun);
    run.saver.finish();
    if (rank == 0) later = run.saver.take_outcomes();
  });
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_NE(failed[0].failure.find("cannot be written"), std::string::npos)
      << failed[0].failure;
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].failure, "");
  EXPECT_EQ(newest_checkpoint(folder_ / "beside"), 6);
}

// A rank is lost while shards are written: there is no manifest, so there is no
// such checkpoint, and the next generation writes it anew.
TEST_F(CheckpointSavers, ShardsWithoutAllOthersAreNoCheckpoint) {
  save_shards_twice(options(), [&](SavingRank& run, int rank) {
    EXPECT_EQ(run.begin(), Answer::kBegun);
    run.saver.disconnect();
    EXPECT_EQ(run.saver.writing_steps(), 0);
    EXPECT_EQ(newest_checkpoint(folder_ / "beside"), 4);
    run.saver.reconnect();
    EXPECT_EQ(run.begin(), Answer::kBegun);
    run.saver.finish();
    if (rank == 0) {
      EXPECT_EQ(run.saver.take_outcomes().size(), 1u);
      EXPECT_EQ(newest_checkpoint(folder_ / "beside"), 5);
    }
  });
}

TEST_F(CheckpointSavers, AMissingOrChangedShardIsDamage) {
  save_shards_twice(options(), [&](SavingRank& run, int) {
    EXPECT_EQ(run.begin(), Answer::kBegun);
    run.saver.finish();
  });
  fs::resize_file(folder_ / "beside/step-5/shard-1.safetensors", 1000);
  Alone loaded(options("other"));
  const LoadedCheckpoint found =
      load_newest_checkpoint(folder_ / "beside", loaded.state, nullptr);
  EXPECT_EQ(found.folder, folder_ / "beside/step-4");
  ASSERT_EQ(found.damaged.size(), 1u);
  EXPECT_NE(found.damaged[0].find("shard-1.safetensors has 1000 bytes"),
            std::string::npos)
      << found.damaged[0];
}

}  // namespace
}  // namespace headroom::checkpoint
