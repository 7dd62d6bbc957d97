// Supervision: the whole program, with workers that only pretend to train
// (fake_worker.cpp), in a folder of the running test's own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {

// How often `what` occurs in `text`.
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
  // headroom looks for headroom-worker beside itself: here it finds the fake
  // one.
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
    unsetenv("FAKE_WORKER");
  }

  std::filesystem::path headroom() const { return folder_ / "bin/headroom"; }

  std::vector<std::string> train(std::vector<std::string> more = {}) const {
    // The fake worker does not check anchors.
    std::vector<std::string> command = {headroom(),      "train", "--data",
                                        "data.yaml",     "--cfg", "yolov5n",
                                        "--noautoanchor"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  // The coordinator's address, as the run printed it.
  static std::string address_in(const std::string& said) {
    const size_t at = said.find("--coordinator ") + 14;
    return said.substr(at, said.find_first_of(" \n", at) - at);
  }

  // With credentials the coordinator listens on a port.
  std::string token_file() const {
    const std::filesystem::path file = folder_ / "token";
    std::ofstream(file) << std::string(32, 't') << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_read |
                                           std::filesystem::perms::owner_write);
    return file.string();
  }

  static std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::string standard_error() const { return text_of(folder_ / "stderr.txt"); }

  bool wait_for(const std::string& text) const {
    for (int i = 0; i < 1000; ++i) {
      if (standard_error().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // None of this test's programs may be left running.
  void expect_nobody_left() const {
    std::vector<pid_t> left;
    for (int i = 0; i < 200; ++i) {
      left = descendants(1, folder_.string());
      if (left.empty()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << left.size() << " processes are left";
  }

  std::filesystem::path folder_;
};

}  // namespace headroom::testing
