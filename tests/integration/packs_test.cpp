// Training on packs equals training on the files bit for bit, with several
// ranks and after a kill and a resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class PackedRun : public ::testing::Test {
 protected:
  PackedRun() : folder_(fresh_folder()), packs_(folder_ / "packs") {
    const ProgramResult packed =
        run_program({program("headroom"), "pack", "--data", shapes_data(),
                     "--output", packs_, "--pack-size", "1MiB"},
                    folder_);
    EXPECT_EQ(packed.exit_code, 0) << packed.err;
    EXPECT_THAT(packed.out,
                HasSubstr("next: headroom train --data " + packs_.string()));
  }

  std::vector<std::string> words(const std::string& data,
                                 const std::string& name,
                                 const std::vector<std::string>& more) const {
    return train_shapes(
        "6", joined({"--data", data, "--name", name, "--epochs", "2"}, more));
  }

  // The lines of a run's steps, without fields that depend on time.
  std::vector<std::string> steps_of(const std::string& name) const {
    std::vector<std::string> steps;
    for (Json line :
         read_lines(folder_ / "runs/train" / name / "steps.jsonl")) {
      std::string text;
      for (const char* key : {"step", "loss", "box", "obj", "cls", "grad_norm",
                              "samples", "lr"}) {
        if (line.contains(key)) text += line[key].dump() + " ";
      }
      steps.push_back(text);
    }
    return steps;
  }

  void train(const std::string& data, const std::string& name,
             const std::vector<std::string>& more) const {
    const ProgramResult run = run_program(words(data, name, more), folder_);
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }

  const fs::path folder_, packs_;
};

TEST_F(PackedRun, HasTheStepsOfTheFiles) {
  for (const char* processes : {"1", "2"}) {
    const std::string of = processes;
    train(shapes_data(), "files" + of, {"--processes", of});
    train(packs_, "packs" + of, {"--processes", of});
    const auto files = steps_of("files" + of);
    EXPECT_GT(files.size(), 4u);
    EXPECT_EQ(steps_of("packs" + of), files) << of;
  }
}

TEST_F(PackedRun, ContinuesAfterAKillWithTheStepsOfTheFiles) {
  train(shapes_data(), "files", {"--processes", "2"});
  Program run(words(packs_, "packs", {"--processes", "2"}), folder_);
  const fs::path steps = folder_ / "runs/train/packs/steps.jsonl";
  ASSERT_TRUE(wait_for_lines(steps, 3, 60));
  const std::vector<pid_t> workers = descendants(run.pid(), "headroom-worker");
  ASSERT_FALSE(workers.empty());
  kill(workers.back(), SIGKILL);
  const ProgramResult result = run.join();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(steps_of("packs"), steps_of("files"));
}

// The run begins on the files and is resumed on the packs.
TEST_F(PackedRun, ResumesARunOfTheFiles) {
  train(shapes_data(), "files", {"--processes", "2"});
  train(shapes_data(), "mixed", {"--processes", "2", "--max-steps", "3"});
  const fs::path run = folder_ / "runs/train/mixed";
  const ProgramResult resumed =
      run_program({program("headroom"), "train", "--resume", run, "--data",
                   packs_, "--max-steps", "1000"},
                  folder_);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, ::testing::Not(HasSubstr("not those that")));
  EXPECT_EQ(steps_of("mixed"), steps_of("files"));
}

TEST_F(PackedRun, VerifyFindsADamagedPack) {
  const fs::path pack = packs_ / "train-00000.tar";
  ASSERT_TRUE(fs::exists(pack));
  // Changes a byte of the first image, which begins after its header and is
  // longer than the header.
  std::string bytes = text_of(pack);
  bytes[512 + 600] = static_cast<char>(bytes[512 + 600] ^ 0x20);
  std::ofstream(pack, std::ios::binary) << bytes;
  const ProgramResult verified = run_program(
      {program("headroom"), "verify", "--data", packs_, "--strict"}, folder_);
  EXPECT_EQ(verified.exit_code, 4) << verified.out << verified.err;
  EXPECT_THAT(verified.out,
              HasSubstr("its bytes in " + pack.string() + " are damaged"));
}

}  // namespace
}  // namespace headroom::testing
