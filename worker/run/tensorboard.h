// TensorboardWriter: scalars, pictures and precision-recall curves as a
// TensorBoard event file.
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

// Data of the plugin pr_curves: figures at the confidences i / (n - 1), all
// lists of one length n. Detectors have no true negatives.
struct PrecisionRecall {
  std::string tag;
  std::vector<double> true_positives, false_positives, false_negatives;
  std::vector<double> precision, recall;
};

class TensorboardWriter {
 public:
  // Starts a new file events.out.tfevents.* in `folder`; `wall_time` seconds
  // since 1970. Throws Error when it cannot be written.
  TensorboardWriter(const std::filesystem::path& folder, double wall_time);

  void add(int64_t step, double wall_time,
           const std::vector<std::pair<std::string, double>>& scalars);
  // `bytes` of a JPEG or PNG file; others are left out.
  void add_picture(int64_t step, double wall_time, const std::string& tag,
                   const std::string& bytes);
  void add_curve(int64_t step, double wall_time, const PrecisionRecall& curve);

 private:
  void write_record(const std::string& payload);

  std::filesystem::path path_;
  std::ofstream file_;
  uintmax_t size_ = 0;  // bytes of whole records
};

}  // namespace headroom::run
