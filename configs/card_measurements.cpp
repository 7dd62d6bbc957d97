#include "configs/card_measurements.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>

#include "configs/options.h"
#include "configs/yaml/quoted_text.h"
#include "configs/yaml/scalar.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/environment.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

constexpr const char* kFolder = "cards";
constexpr const char* kSuffix = ".yaml";
constexpr const char* kRemedy =
    "remove the file, and measure again with headroom plan --measure";

class Reader {
 public:
  explicit Reader(const yaml::YamlValue& mapping) : mapping_(mapping) {}

  std::string text(const std::string& key) const {
    return yaml::as_text(yaml::require(mapping_, key), key);
  }
  int64_t whole(const std::string& key) const {
    const yaml::YamlValue& value = yaml::require(mapping_, key);
    const int64_t number = yaml::as_int64(value, key);
    if (number < 1) refuse(value, key);
    return number;
  }
  double between(const std::string& key, double least, double most) const {
    const yaml::YamlValue& value = yaml::require(mapping_, key);
    const double number = yaml::as_double(value, key);
    if (!(number >= least && number <= most)) refuse(value, key);
    return number;
  }
  bool truth(const std::string& key) const {
    const yaml::YamlValue& value = yaml::require(mapping_, key);
    const auto truth = yaml::parse_bool(value.scalar);
    if (!truth) refuse(value, key);
    return *truth;
  }
  Precision precision(const std::string& key) const {
    const yaml::YamlValue& value = yaml::require(mapping_, key);
    for (const auto& [known, name] : kPrecisions) {
      if (value.scalar == name && known != Precision::kAuto) return known;
    }
    refuse(value, key);
  }

 private:
  [[noreturn]] static void refuse(const yaml::YamlValue& value,
                                  const std::string& key) {
    yaml::refuse(value.place, key + " is '" + value.scalar + "'", kRemedy);
  }

  const yaml::YamlValue& mapping_;
};

std::string name_of(Precision precision) {
  return std::ranges::find(kPrecisions, precision,
                           [](const auto& one) { return one.value; })
      ->name;
}

// The file's measurements by this version of the program, with any driver;
// empty if there is no file.
std::vector<CardMeasurement> ones_of_all_drivers(
    const std::filesystem::path& file) {
  std::error_code error;
  if (file.empty() || !std::filesystem::exists(file, error)) return {};
  std::vector<CardMeasurement> all = parse_card_measurements(
      yaml::read_config_file(file, "measurements"), file.string());
  std::erase_if(all, [](const CardMeasurement& one) {
    return one.program != HEADROOM_VERSION;
  });
  return all;
}

// An unknown driver may be any.
bool may_be_same_driver(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() || a == b;
}

std::vector<CardMeasurement> current_ones(const std::filesystem::path& file) {
  std::vector<CardMeasurement> all = ones_of_all_drivers(file);
  std::erase_if(all, [driver = driver_version()](const CardMeasurement& one) {
    return !may_be_same_driver(one.driver, driver);
  });
  return all;
}

bool is_same_step(const CardMeasurement& a, const CardMeasurement& b) {
  return a.model == b.model && a.precision == b.precision && a.tf32 == b.tf32 &&
         a.cuda_graphs == b.cuda_graphs &&
         may_be_same_driver(a.driver, b.driver);
}

}  // namespace

std::vector<CardMeasurement> parse_card_measurements(const std::string& text,
                                                     const std::string& file) {
  static const std::array<std::string, 2> kKeys = {"card", "measurements"};
  static const std::array<std::string, 15> kMeasured = {"model",
                                                        "parameters",
                                                        "precision",
                                                        "tf32",
                                                        "graphs",
                                                        "height",
                                                        "width",
                                                        "images",
                                                        "seconds",
                                                        "time_scale",
                                                        "seconds_beside_layers",
                                                        "date",
                                                        "uuid",
                                                        "driver",
                                                        "program"};
  constexpr double kLongestStep = 3600;
  const yaml::YamlValue root = yaml::parse_yaml(text, file);
  yaml::require_mapping(root, "a file of measurements", kKeys);
  const std::string card = Reader(root).text("card");
  const yaml::YamlValue& list = yaml::require(root, "measurements");
  if (list.kind != yaml::YamlValue::Kind::kSequence) {
    yaml::refuse(list.place, "measurements is " + yaml::describe(list),
                 kRemedy);
  }
  std::vector<CardMeasurement> all;
  for (const yaml::YamlValue& item : list.items) {
    yaml::require_mapping(item, "a measurement", kMeasured);
    const Reader reader(item);
    all.push_back({.card = card,
                   .model = reader.text("model"),
                   .parameters = reader.whole("parameters"),
                   .precision = reader.precision("precision"),
                   .tf32 = reader.truth("tf32"),
                   .cuda_graphs = reader.truth("graphs"),
                   .height = reader.whole("height"),
                   .width = reader.whole("width"),
                   .images = reader.whole("images"),
                   .seconds = reader.between("seconds", 1e-9, kLongestStep),
                   .time_scale = reader.between("time_scale", 1e-3, 1e6),
                   .seconds_beside_layers =
                       reader.between("seconds_beside_layers", 0, kLongestStep),
                   .date = reader.text("date"),
                   .uuid = reader.text("uuid"),
                   .driver = reader.text("driver"),
                   .program = reader.text("program")});
  }
  return all;
}

std::string to_yaml(const std::vector<CardMeasurement>& measurements) {
  std::string text =
      "# What headroom plan --measure found on this kind of card. Without the "
      "file, plans assume its speed.\n";
  for (const CardMeasurement& one : measurements) {
    if (&one == measurements.data()) {
      text += "card: " + yaml::quoted_text(one.card) + "\nmeasurements:\n";
    }
    const auto line = [&text](const char* key, const std::string& value) {
      text += cat("    ", key, ": ", value, "\n");
    };
    text += "  - model: " + yaml::quoted_text(one.model) + "\n";
    line("parameters", std::to_string(one.parameters));
    line("precision", yaml::quoted_text(name_of(one.precision)));
    line("tf32", one.tf32 ? "true" : "false");
    line("graphs", one.cuda_graphs ? "true" : "false");
    line("height", std::to_string(one.height));
    line("width", std::to_string(one.width));
    line("images", std::to_string(one.images));
    line("seconds", yaml::exact_text(one.seconds));
    line("time_scale", yaml::exact_text(one.time_scale));
    line("seconds_beside_layers", yaml::exact_text(one.seconds_beside_layers));
    line("date", yaml::quoted_text(one.date));
    line("uuid", yaml::quoted_text(one.uuid));
    line("driver", yaml::quoted_text(one.driver));
    line("program", yaml::quoted_text(one.program));
  }
  return text;
}

std::string driver_version() {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue ...".
  std::istringstream words(
      text_or_none("/proc/driver/nvidia/version").substr(0, 4096));
  for (std::string word; words >> word;) {
    if (word.find('.') != std::string::npos &&
        std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      return word;
    }
  }
  return "";
}

std::filesystem::path card_file(const std::string& card) {
  const std::filesystem::path cache = user_cache_folder();
  if (cache.empty() || card.empty()) return "";
  std::string name = card;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '-';
  }
  return cache / kFolder / (name + kSuffix);
}

std::vector<CardMeasurement> measurements_of(const std::string& card) {
  return current_ones(card_file(card));
}

std::vector<CardMeasurement> all_measurements(
    const std::function<void(const std::string&)>& on_fault) {
  const std::filesystem::path cache = user_cache_folder();
  if (cache.empty()) return {};
  std::vector<CardMeasurement> all;
  std::error_code ignored;  // without the folder there are none
  for (const std::filesystem::path& file :
       entries_of(cache / kFolder, ignored)) {
    if (file.extension() != kSuffix) continue;
    try {
      std::ranges::move(current_ones(file), std::back_inserter(all));
    } catch (const Error& error) {
      on_fault(error.what());
    }
  }
  return all;
}

std::filesystem::path store_measurement(const CardMeasurement& measurement) {
  const std::filesystem::path file = card_file(measurement.card);
  if (file.empty()) {
    throw Error("measurements", "there is no folder to keep it in",
                "set HOME, or XDG_CACHE_HOME, to a folder with its whole path");
  }
  std::vector<CardMeasurement> all = ones_of_all_drivers(file);
  std::erase_if(all, [&](const CardMeasurement& one) {
    return one.card != measurement.card || is_same_step(one, measurement);
  });
  all.push_back(measurement);
  all.back().program = HEADROOM_VERSION;
  std::error_code ignored;  // the write reports the failure
  std::filesystem::create_directories(file.parent_path(), ignored);
  write_whole_file(file, to_yaml(all));
  return file;
}

}  // namespace headroom::configs
