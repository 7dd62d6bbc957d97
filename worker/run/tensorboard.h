// TensorboardWriter: scalars, pictures and precision-recall curves as a
// TensorBoard event file.
//
// The file is a sequence of TFRecords, each with an Event message as payload:
//   length u64, masked CRC-32C of the length, payload, masked CRC-32C of the
//   payload
// Every add() is written to the file at once, so a killed run keeps its curves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace headroom::run {

// Data of the plugin pr_curves at the confidences i / (n - 1); all lists have
// length n. Detectors have no true negatives.
struct PrecisionRecall {
  std::string tag;
  std::vector<double> true_positives, false_positives, false_negatives;
  std::vector<double> precision, recall;
};

class TensorboardWriter {
 public:
  // Continues the newest file events.out.tfevents.* of a run in `folder`, after
  // its last complete record. If there is none, creates a file. So a run with
  // several generations has one file. `wall_time` is in seconds since 1970.
  // Throws Error if the file cannot be written.
  TensorboardWriter(const std::filesystem::path& folder, double wall_time);

  void add(int64_t step, double wall_time,
           const std::vector<std::pair<std::string, double>>& scalars);
  // `bytes`: a JPEG or PNG file; other formats are ignored.
  void add_picture(int64_t step, double wall_time, const std::string& tag,
                   const std::string& bytes);
  void add_curve(int64_t step, double wall_time, const PrecisionRecall& curve);

 private:
  void write_record(const std::string& payload);

  std::filesystem::path path_;
  std::ofstream file_;
  uintmax_t size_ = 0;  // bytes of complete records
};

}  // namespace headroom::run
