// TensorboardWriter: scalar curves as a TensorBoard event file.
//
// The file is a sequence of TFRecords, each an Event message:
//   length u64, masked CRC-32C of it, payload, masked CRC-32C of the payload
// Every add() is written through, so a killed run keeps its curves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace headroom::run {

class TensorboardWriter {
 public:
  // Starts a new file events.out.tfevents.* in `folder`; `wall_time` seconds
  // since 1970. Throws Error when it cannot be written.
  TensorboardWriter(const std::filesystem::path& folder, double wall_time);

  void add(int64_t step, double wall_time,
           const std::vector<std::pair<std::string, double>>& scalars);

 private:
  void write_record(const std::string& payload);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace headroom::run
