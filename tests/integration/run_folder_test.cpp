// Tests which files the folder of a run contains, which process may hold the
// folder, and which files are removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
constexpr const char* kRun = "runs/train/exp";

std::vector<std::string> short_run(const std::vector<std::string>& more = {}) {
  return train_shapes("8", joined({"--epochs", "1", "--noval"}, more));
}

std::vector<std::string> files_of(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files.push_back(entry.path().lexically_relative(folder).string() + ": " +
                      (entry.path().string().find("/logs/") == std::string::npos
                           ? text_of(entry.path())
                           : ""));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(ExistOk, FilesThatNoRunWroteAreKept) {
  const fs::path folder = fresh_folder();
  ASSERT_EQ(run_program(short_run(), folder).exit_code, 0);
  const fs::path run = folder / kRun;
  const std::vector<std::string> mine = {
      "weights/mine.safetensors", "weights/notes.txt", "checkpoints/notes.txt",
      "checkpoints/step-old/a.txt", "checkpoints/step-4/notes.txt",
      // This file has the name of a run's file, but no run wrote it.
      "weights/epoch3.safetensors"};
  for (const std::string& file : mine) {
    fs::create_directories((run / file).parent_path());
    std::ofstream(run / file) << "mine";
  }
  fs::copy_file(run / "weights/last.safetensors",
                run / "weights/epoch4.safetensors");  // a file of a longer run
  const std::vector<std::string> in_the_way = {"weights/best.safetensors",
                                               "results.csv"};
  fs::remove(run / ".headroom-files");  // as before any run wrote pictures
  for (const std::string& file : in_the_way)
    std::ofstream(run / file) << "mine";
  const ProgramResult again = run_program(short_run({"--exist-ok"}), folder);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  for (const std::string& file : mine) {
    EXPECT_EQ(text_of(run / file), "mine") << file;
  }
  for (const std::string& file : in_the_way) {
    EXPECT_EQ(text_of(run / (file + ".before")), "mine") << file;
    EXPECT_NE(text_of(run / file), "mine") << file;
  }
  EXPECT_FALSE(fs::exists(run / "weights/epoch4.safetensors"));
  EXPECT_FALSE(fs::exists(run / ".older-run"));
  // The run's own pictures are replaced completely.
  ASSERT_EQ(run_program(short_run({"--exist-ok"}), folder).exit_code, 0);
  EXPECT_FALSE(fs::exists(run / "results.csv.before2"));
  EXPECT_FALSE(fs::exists(run / "steps.jsonl.before2"));
}

TEST(ExistOk, AStartingPointInTheFolderIsRefusedAndKept) {
  const fs::path folder = fresh_folder();
  ASSERT_EQ(run_program(short_run(), folder).exit_code, 0);
  const std::string weights = (folder / kRun / "weights/last.safetensors");
  const auto before = files_of(folder / kRun);
  const ProgramResult refused =
      run_program(short_run({"--exist-ok", "--weights", weights}), folder);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr(weights));
  EXPECT_THAT(refused.err, HasSubstr("copy the file elsewhere"));
  EXPECT_EQ(files_of(folder / kRun), before);
}

TEST(ExistOk, AnOlderRunIsWholeUntilAStepIsCommitted) {
  const fs::path folder = fresh_folder();
  ASSERT_EQ(run_program(short_run(), folder).exit_code, 0);
  const std::vector<std::string> kept = {"steps.jsonl",
                                         "run.yaml",
                                         "summary.json",
                                         "labels.jpg",
                                         "results.csv",
                                         "weights/last.safetensors",
                                         "checkpoints/step-5/MANIFEST.json"};
  std::vector<std::string> before;
  for (const std::string& file : kept) {
    before.push_back(text_of(folder / kRun / file));
    EXPECT_FALSE(before.back().empty()) << file;
  }
  const ProgramResult failed = run_program(
      short_run({"--exist-ok", "--inject", "nan@rank=0,step=0"}), folder);
  EXPECT_EQ(failed.exit_code, 5) << failed.err;
  EXPECT_THAT(failed.err, HasSubstr("the older run in"));
  for (size_t k = 0; k < kept.size(); ++k) {
    EXPECT_EQ(text_of(folder / kRun / kept[k]), before[k]) << kept[k];
  }
  const ProgramResult resumed = run_program(
      {program("headroom"), "train", "--resume", kRun, "--epochs", "2"},
      folder);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

// The second generation begins without a checkpoint, not with that of the older
// run.
TEST(ExistOk, AWorkerLostBeforeTheFirstStepDoesNotReviveTheOlderRun) {
  const fs::path folder = fresh_folder();
  ASSERT_EQ(run_program(short_run(), folder).exit_code, 0);
  std::vector<std::string> other =
      short_run({"--exist-ok", "--inject", "kill@rank=0,step=0"});
  *std::find(other.begin(), other.end(), "yolov5n") = "yolov5s";
  const ProgramResult run = run_program(other, folder);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = read_lines(folder / kRun / "steps.jsonl");
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines.front().at("generation"), 2);
  EXPECT_THAT(text_of(folder / kRun / "run.yaml"), HasSubstr("yolov5s"));
}

// On a shared machine other users can read the results if the umask allows it.
// They cannot read what would let them join the run.
TEST(SharedMachine, ResultsFollowTheUmaskAndSecretsAreTheUsersOwn) {
  using std::filesystem::perms;
  const bool is_root = ::geteuid() == 0;
  for (const uid_t user : is_root ? std::vector<uid_t>{0, 1000, 65534}
                                  : std::vector<uid_t>{::geteuid()}) {
    const unsigned umask = user == 1000 ? 0007 : user == 0 ? 0022 : 0002;
    SCOPED_TRACE("user " + std::to_string(user));
    const fs::path folder = fresh_folder();
    if (is_root) {
      ASSERT_EQ(::chown(folder.c_str(), user, user), 0);
    }
    std::string words;
    for (const std::string& word :
         train_shapes("8", {"--epochs", "500", "--noval"})) {
      words += " '" + word + "'";
    }
    char begin[200];
    std::snprintf(begin, sizeof begin, "umask %03o; export HOME=%s; exec ",
                  umask, folder.c_str());
    const std::string as =
        user == ::geteuid()
            ? ""
            : "setpriv --clear-groups --reuid=" + std::to_string(user) +
                  " --regid=" + std::to_string(user);
    Program run({"/bin/sh", "-c", begin + as + words}, folder);
    ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 4, 60))
        << text_of(folder / "stderr.txt");
    const perms secret = perms::owner_read | perms::owner_write;
    for (const char* file : {"coordinator.log", "coordinator.log.lock"}) {
      EXPECT_EQ(fs::status(folder / kRun / file).permissions(), secret) << file;
    }
    run.signal(SIGINT);
    EXPECT_EQ(run.join().exit_code, 130);
    int files = 0;
    for (const auto& entry :
         fs::recursive_directory_iterator(folder / "runs")) {
      const unsigned all = entry.is_directory() ? 0777 : 0666;
      EXPECT_EQ(static_cast<unsigned>(entry.status().permissions()),
                all & ~umask)
          << entry.path();
      struct stat about {};
      ASSERT_EQ(::stat(entry.path().c_str(), &about), 0);
      EXPECT_EQ(about.st_uid, user) << entry.path();
      ++files;
    }
    EXPECT_GT(files, 10);
  }
}

// The last line is typed as a user would do it: copied from the screen.
TEST(UnfinishedRun, ItsLastLineGoesOnWithItAndItsWeightsAreThere) {
  const fs::path folder = fresh_folder();
  const ProgramResult run =
      run_program(short_run({"--max-steps", "3", "--processes", "2"}), folder);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string weights = kRun + std::string("/weights/last.safetensors");
  EXPECT_TRUE(fs::exists(folder / weights));
  EXPECT_EQ(run_program({program("headroom"), "val", "--data", shapes_data(),
                         "--weights", weights, "--img", "96"},
                        folder)
                .exit_code,
            0);
  const std::string mark = "continue with: headroom ";
  const size_t at = run.out.find(mark);
  ASSERT_NE(at, std::string::npos) << run.out;
  const std::string words = run.out.substr(at + mark.size());
  const ProgramResult resumed = run_program(
      {"/bin/sh", "-c",
       program("headroom") + " " + words.substr(0, words.find('\n'))},
      folder);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("all 5 steps done"));
}

// The last line gives a resume command, and it works.
TEST(RemovedRunFolder, IsMadeAgainWithAllFilesForAResumption) {
  const fs::path folder = fresh_folder();
  Program run(train_shapes("8", {"--epochs", "500", "--noval", "--nosave"}),
              folder);
  ASSERT_TRUE(wait_for_lines(folder / kRun / "steps.jsonl", 4, 60));
  fs::remove_all(folder / "runs");
  run.signal(SIGINT);
  const ProgramResult result = run.join();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("was removed meanwhile"));
  const std::string mark = "continue with: headroom ";
  const size_t at = result.err.find(mark);
  ASSERT_NE(at, std::string::npos) << result.err;
  const std::string words = result.err.substr(at + mark.size());
  const ProgramResult resumed =
      run_program({"/bin/sh", "-c",
                   program("headroom") + " " +
                       words.substr(0, words.find('\n')) + " --epochs 4"},
                  folder);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

// The system's signal SIGXFSZ would otherwise end each worker that writes a
// checkpoint.
TEST(LimitOfFileSize, IsAnErrorThatNamesTheFile) {
  const fs::path folder = fresh_folder();
  std::string words;
  for (const std::string& word : short_run()) words += "'" + word + "' ";
  const ProgramResult run =
      run_program({"/bin/bash", "-c", "ulimit -f 2000; exec " + words}, folder);
  EXPECT_EQ(run.exit_code, 5) << run.err;
  EXPECT_THAT(run.err, HasSubstr("File too large"));
}

}  // namespace
}  // namespace headroom::testing
