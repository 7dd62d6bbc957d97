// What `headroom plan --measure` found on cards of one kind: a YAML file in the
// user's cache, from which later plans for such cards take their speed. Only
// measurements of this program's version, and of the driver of this machine if
// it has one, are used.
//
// Errors: Error (exit 2), with file:line:column if the file's content is wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

// A model's step on a card that trained alone. A step of n images takes
// seconds_beside_layers + n * (the layers' computed seconds) * time_scale.
struct CardMeasurement {
  std::string card = {};   // the kind: "NVIDIA H200"
  std::string model = {};  // "yolov5s"
  int64_t parameters = 0;  // of the model
  Precision precision = Precision::kFp32;
  bool tf32 = false;
  bool cuda_graphs = false;
  int64_t height = 0;  // of an image
  int64_t width = 0;
  int64_t images = 0;  // of the larger of the measured steps
  double seconds = 0;  // of that step
  double time_scale = 1;
  double seconds_beside_layers = 0;
  std::string date = {};     // "2026-11-30"
  std::string uuid = {};     // of the card; "" if unknown
  std::string driver = {};   // its version; "" if unknown
  std::string program = {};  // the version of Headroom

  bool operator==(const CardMeasurement&) const = default;
};

// `text` is the content of `file`.
std::vector<CardMeasurement> parse_card_measurements(const std::string& text,
                                                     const std::string& file);
std::string to_yaml(const std::vector<CardMeasurement>& measurements);

// The version of this machine's NVIDIA driver; "" without one.
std::string driver_version();

// $XDG_CACHE_HOME/headroom/cards/NAME.yaml, else in ~/.cache; "" if there is no
// such folder.
std::filesystem::path card_file(const std::string& card);

// The measurements that this version of the program made on cards of this kind;
// empty if there is no file.
std::vector<CardMeasurement> measurements_of(const std::string& card);

// The measurements of this version of the program on cards of all kinds. A file
// that is wrong is left out; `on_fault` is called with its error.
std::vector<CardMeasurement> all_measurements(
    const std::function<void(const std::string&)>& on_fault);

// Adds the measurement to its card's file, in place of one of the same model,
// number format and driver. Those of other drivers stay, because machines with
// several drivers may share the folder. If two programs do so at once, one of
// the two is lost.
// Returns the file.
std::filesystem::path store_measurement(const CardMeasurement& measurement);

}  // namespace headroom::configs
