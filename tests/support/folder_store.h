// FolderStore: a key-value store of processes that share a folder.
//
// Threads: any; processes too. Errors: CommunicationError when a key is not set
// in time.
#pragma once

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/key_value_store.h"

namespace headroom {

// A key is a file, written under another name and renamed, so that no process
// reads half of it.
class FolderStore final : public KeyValueStore {
 public:
  explicit FolderStore(std::filesystem::path folder)
      : folder_(std::move(folder)) {}

  void set(const std::string& key, const std::string& value) override {
    const std::filesystem::path file = file_of(key);
    const std::filesystem::path aside =
        file.string() + "." + std::to_string(getpid());
    std::ofstream(aside, std::ios::binary) << value;
    std::filesystem::rename(aside, file);
  }

  std::string get(const std::string& key,
                  std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!std::filesystem::exists(file_of(key))) {
      if (std::chrono::steady_clock::now() > deadline) {
        throw CommunicationError("nobody set '" + key + "'");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    std::ifstream in(file_of(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::filesystem::path file_of(std::string key) const {
    for (char& letter : key) {
      if (letter == '/') letter = '_';
    }
    return folder_ / key;
  }

  const std::filesystem::path folder_;
};

}  // namespace headroom
