#include "coordinator/log/run_log.h"

#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "tests/coordinator/service/local_run.h"

namespace headroom::coordinator {
namespace {

namespace fs = std::filesystem;

fs::path fresh_log() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const fs::path folder =
      fs::path(HEADROOM_BUILD_DIR) / "tests/run_log" / test->name();
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder / "log";
}

wire::LogSnapshot snapshot_of(uint64_t generation) {
  wire::LogSnapshot snapshot;
  snapshot.set_run_directory("/runs/exp");
  snapshot.mutable_state()->mutable_generation()->set_number(generation);
  return snapshot;
}

wire::LogRecord key_of(uint64_t generation, const std::string& name,
                       const std::string& value) {
  wire::LogRecord record;
  wire::LoggedKey& key = *record.mutable_key();
  key.set_generation(generation);
  key.set_key(name);
  key.set_value(value);
  return record;
}

TEST(RunLog, HoldsTheNewestOfEverythingAndTheKeysOfTheGeneration) {
  const fs::path file = fresh_log();
  {
    const auto log = RunLog::open(file);
    EXPECT_FALSE(log->found());
    log->save(snapshot_of(1));
    log->add(key_of(1, "k", "old"));
    log->save(snapshot_of(2));
    log->add(key_of(2, "k", "new"));
    for (int step = 1; step <= 3; ++step) {
      wire::LogRecord progress, event;
      progress.mutable_progress()->set_step(step);
      event.mutable_event()->set_sequence(step);
      log->add(progress);
      log->add(event);
    }
  }
  const auto log = RunLog::open(file);
  ASSERT_TRUE(log->found());
  EXPECT_EQ(log->found()->snapshot.state().generation().number(), 2u);
  EXPECT_EQ(log->found()->progress->step(), 3);
  EXPECT_EQ(log->found()->events.size(), 3u);
  EXPECT_EQ(log->found()->keys.at("k"), "new");
}

// The lock file, which holds the number of the last synced record, is a full
// device here: writing the number fails, so each sync must fail.
TEST(RunLog, AFailedSyncIsNotTakenForOneThatSucceeded) {
  const fs::path file = fresh_log();
  { RunLog::open(file)->save(snapshot_of(1)); }
  fs::remove(file.string() + ".lock");
  fs::create_symlink("/dev/full", file.string() + ".lock");
  const auto log = RunLog::open(file);
  log->save(snapshot_of(2));
  EXPECT_THROW(log->sync(), Error);
  EXPECT_THROW(log->sync(), Error);
}

TEST(RunLog, ATornEndIsReported) {
  const fs::path file = fresh_log();
  {
    const auto log = RunLog::open(file);
    EXPECT_EQ(log->torn_end(), "");
    log->save(snapshot_of(1));
    log->add(key_of(1, "k", "v"));
  }
  fs::resize_file(file, fs::file_size(file) - 1);
  const auto log = RunLog::open(file);
  EXPECT_EQ(log->torn_end(),
            "29 bytes behind record 1 of the log, which were not written to "
            "their end, were dropped");
  EXPECT_TRUE(log->found()->keys.empty());
}

TEST(RunLog, AnEqualSnapshotIsNotWrittenAgain) {
  const fs::path file = fresh_log();
  const auto log = RunLog::open(file);
  log->save(snapshot_of(1));
  const auto bytes = fs::file_size(file);
  log->save(snapshot_of(1));
  EXPECT_EQ(fs::file_size(file), bytes);
}

TEST(RunLog, StaysBounded) {
  const fs::path file = fresh_log();
  const auto log = RunLog::open(file);
  log->save(snapshot_of(1));
  wire::LogRecord event;
  event.mutable_event()->set_reason(std::string(1 << 20, 'x'));
  for (int i = 0; i < 5; ++i) log->add(event);
  ASSERT_TRUE(log->wants_compaction());
  log->compact({snapshot_of(1), wire::Progress(), {}, {{"k", "v"}}});
  EXPECT_LT(fs::file_size(file), 1000u);
  EXPECT_FALSE(log->wants_compaction());
}

TEST(RunLog, ACoordinatorWithAnotherConfigurationIsRefused) {
  ServerOptions options = LocalRun::options(1, "/runs/exp");
  options.log = fresh_log();
  { const auto first = Server::start(options); }
  options.config.seed = 7;
  try {
    Server::start(options);
    FAIL() << "it went on with another run";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[log] " + options.log +
                  " is of another run, of /runs/exp: start the coordinator "
                  "with that run's flags, or name another log");
  }
}

TEST(RunLog, ACoordinatorThatIsStartedAnewKeepsTheEndOfTheRunsTime) {
  ServerOptions options = LocalRun::options(1, "/runs/exp");
  options.log = fresh_log();
  options.config.hours = 1;
  options.config.ends_at = 5000;
  { const auto first = Server::start(options); }
  options.config.ends_at = 9000;
  { const auto second = Server::start(options); }
  const auto found = RunLog::open(options.log)->found();
  ASSERT_TRUE(found);
  EXPECT_NE(found->snapshot.run_config_yaml().find("\nends_at: 5000\n"),
            std::string::npos);
}

TEST(RunLog, ASecondCoordinatorOnOneLogIsRefused) {
  ServerOptions options = LocalRun::options(1, "/runs/exp");
  options.log = fresh_log();
  const auto first = Server::start(options);
  EXPECT_THROW(Server::start(options), Error);
}

// A run's directory is chosen only once. A restarted coordinator whose options
// name another directory takes the one in the log.
TEST(RunLog, ASuccessorHasTheRunsDirectory) {
  ServerOptions options = LocalRun::options(1, "/runs/exp");
  options.log = fresh_log();
  { const auto first = Server::start(options); }
  options.run_directory = "/runs/exp2";
  const auto second = Server::start(options);
  EXPECT_EQ(second->status().run_directory, "/runs/exp");
}

}  // namespace
}  // namespace headroom::coordinator
