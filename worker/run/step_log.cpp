#include "worker/run/step_log.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "parallel/base/check.h"

namespace headroom::run {
namespace {

namespace fs = std::filesystem;

// Bytes of the leading lines whose step is below `first_step`. A torn last line
// of a killed run is not a line.
uintmax_t bytes_to_keep(const fs::path& path, int64_t first_step) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  uintmax_t keep = 0;
  while (std::getline(file, line) && !file.eof()) {
    const auto record = nlohmann::json::parse(line, nullptr, false);
    if (record.is_discarded() || !record.contains("step") ||
        record["step"].get<int64_t>() >= first_step) {
      break;
    }
    keep += line.size() + 1;
  }
  return keep;
}

}  // namespace

StepLog::StepLog(const fs::path& file, int64_t first_step,
                 const std::string& newest_line)
    : file_(file) {
  std::error_code error;
  // What is kept ends with the step before the newest.
  const int64_t first_cut = newest_line.empty() ? first_step : first_step - 1;
  if (fs::exists(file, error)) {
    fs::resize_file(file, bytes_to_keep(file, first_cut), error);
  }
  if (error || !std::ofstream(file, std::ios::app)) {
    throw Error("run", "cannot write " + file.string(),
                "choose a writable folder with --project DIR");
  }
  if (!newest_line.empty()) write(newest_line);
}

std::string to_json_line(const StepRecord& record, int64_t epoch_samples) {
  const step::StepResult& result = record.result;
  nlohmann::ordered_json memory = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < result.measured_peak_bytes.size(); ++rank) {
    const bool is_predicted = result.predicted_peak_bytes[rank] > 0;
    memory.push_back({{"rank", rank},
                      {"predicted_peak_bytes",
                       is_predicted ? nlohmann::ordered_json(
                                          result.predicted_peak_bytes[rank])
                                    : nlohmann::ordered_json()},
                      {"measured_peak_bytes", result.measured_peak_bytes[rank]},
                      {"live_bytes", result.live_bytes[rank]}});
  }
  // Doubles are written with as many digits as it takes to read the same bits.
  nlohmann::ordered_json line = {
      {"step", record.step},
      {"epoch", record.epoch},
      {"generation", record.generation},
      {"attempt", record.attempt},
      {"optimizer_step", result.optimizer_stepped},
      {"loss", result.loss},
      {"box", result.box},
      {"obj", result.obj},
      {"cls", result.cls},
      {"grad_norm", result.gradient_norm},
      {"lr", result.settings.lr},
      {"samples", record.samples},
      {"epoch_samples", epoch_samples},
      {"images_per_second", record.images_per_second},
      {"seconds", record.seconds},
      {"memory", memory}};
  if (record.image_height > 0) {
    line["image_size"] = {record.image_height, record.image_width};
  }
  if (result.loss_scale) line["loss_scale"] = *result.loss_scale;
  if (result.lowered_scale) line["update_skipped"] = true;
  return line.dump();
}

bool StepLog::write(const std::string& line) {
  file_.add(line);
  return file_.write();
}

}  // namespace headroom::run
