// Supervision: runs the whole program, with workers that only pretend to train
// (fake_worker.cpp), in a folder of the running test.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {

// Returns how often `what` occurs in `text`.
inline size_t count_of(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

class Supervision : public ::testing::Test {
 protected:
  // headroom looks for headroom-worker in its own folder, where it finds the
  // fake worker.
  void SetUp() override {
    folder_ = fresh_folder();
    std::filesystem::create_directories(folder_ / "bin");
    std::filesystem::copy_file(program("headroom"), headroom());
    std::filesystem::copy_file(
        std::filesystem::path(HEADROOM_BUILD_DIR) / "tests/fake_worker",
        folder_ / "bin/headroom-worker");
    std::filesystem::create_directories(folder_ / "images");
    std::ofstream(folder_ / "data.yaml")
        << "train: images\nval: images\nnames: [a]\n";
    for (const char* name : kVariables) unsetenv(name);
  }
  void TearDown() override {
    for (const char* name : kVariables) unsetenv(name);
    expect_nobody_left();
  }

  std::filesystem::path headroom() const { return folder_ / "bin/headroom"; }

  std::vector<std::string> train(std::vector<std::string> more = {}) const {
    // Anchors are not checked, because the fake worker cannot do that.
    std::vector<std::string> command = {headroom(),      "train", "--data",
                                        "data.yaml",     "--cfg", "yolov5n",
                                        "--noautoanchor"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  ProgramResult run_train(const std::vector<std::string>& more = {}) const {
    return run_program(train(more), folder_);
  }
  ProgramResult run_headroom(std::vector<std::string> words) const {
    words.insert(words.begin(), headroom());
    return run_program(words, folder_);
  }

  // Sets FAKE_WORKER, which decides what the workers do (fake_worker.cpp).
  static void let_workers(const char* behave) {
    setenv("FAKE_WORKER", behave, 1);
  }
  // Starts a training with fake workers of kind `behave`, and waits until
  // `text` is printed on standard error.
  std::unique_ptr<Program> started(
      const char* behave, const std::string& text,
      const std::vector<std::string>& more = {}) const {
    let_workers(behave);
    auto run = std::make_unique<Program>(train(more), folder_);
    EXPECT_TRUE(wait_for(text)) << standard_error();
    return run;
  }
  // Ends the run by Ctrl-C.
  static ProgramResult interrupted(Program& run) {
    run.signal(SIGINT);
    ProgramResult result = run.join();
    EXPECT_EQ(result.exit_code, 130) << result.err;
    return result;
  }
  static void kill_all(const std::vector<pid_t>& processes) {
    for (const pid_t pid : processes) kill(pid, SIGKILL);
  }

  // The coordinator's address, as the run printed it.
  static std::string address_in(const std::string& said) {
    const size_t at = said.find("--coordinator ") + 14;
    return said.substr(at, said.find_first_of(" \n", at) - at);
  }

  // A token file. With a token, the coordinator listens on a port.
  std::string token_file() const {
    const std::filesystem::path file = folder_ / "token";
    std::ofstream(file) << std::string(32, 't') << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_read |
                                           std::filesystem::perms::owner_write);
    return file.string();
  }

  std::string standard_error() const { return text_of(folder_ / "stderr.txt"); }

  // Returns whether `is_so` becomes true within ten seconds.
  template <typename Condition>
  static bool eventually(const Condition& is_so) {
    for (int i = 0; i < 1000; ++i) {
      if (is_so()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  bool wait_for(const std::string& text) const {
    return eventually(
        [&] { return standard_error().find(text) != std::string::npos; });
  }

  // None of this test's programs may be left running.
  void expect_nobody_left() const {
    std::vector<pid_t> left;
    EXPECT_TRUE(eventually([&] {
      left = descendants(1, folder_.string());
      return left.empty();
    })) << left.size()
        << " processes are left";
  }

  static constexpr std::array<const char*, 5> kVariables = {
      "FAKE_WORKER", "FAKE_DEVICES", "FAKE_CAPABILITY",
      "HEADROOM_DEVICE_PLUGIN", "HEADROOM_MACHINE_ROOT"};
  std::filesystem::path folder_;
};

}  // namespace headroom::testing
