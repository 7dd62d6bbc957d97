#include "worker/run/results.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"

namespace headroom::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The columns of results.csv after the epoch column; their names are also
// TensorBoard's tags. The columns of a validation have no value if the epoch
// was not validated.
using Columns = std::vector<std::pair<std::string, std::optional<double>>>;

Columns columns_of(const EpochRecord& record) {
  using Result = validation::ValidationResult;
  const auto validated = [&](double Result::*figure) {
    return record.validation ? std::optional(*record.validation.*figure)
                             : std::nullopt;
  };
  Columns columns;
  const auto names = loss_term_names(record.has_anchors);
  for (size_t i = 0; i < names.size(); ++i) {
    columns.emplace_back(cat("train/", names[i], "_loss"), record.losses[i]);
  }
  columns.insert(columns.end(),
                 {{"metrics/precision", validated(&Result::precision)},
                  {"metrics/recall", validated(&Result::recall)},
                  {"metrics/mAP_0.5", validated(&Result::map50)},
                  {"metrics/mAP_0.5:0.95", validated(&Result::map)}});
  for (size_t i = 0; i < names.size(); ++i) {
    columns.emplace_back(cat("val/", names[i], "_loss"),
                         record.validation
                             ? std::optional(record.validation->losses[i])
                             : std::nullopt);
  }
  for (size_t i = 0; i < record.lr.size(); ++i) {
    columns.emplace_back(cat("x/lr", i), record.lr[i]);
  }
  return columns;
}

std::string header_line(bool has_anchors) {
  std::string line = "epoch";
  for (const auto& [name, value] : columns_of({.has_anchors = has_anchors})) {
    line += "," + name;
  }
  return line + "\n";
}

double now() { return static_cast<double>(std::time(nullptr)); }

// Removes the rows of epochs from `first_epoch` on. A file without such rows is
// not rewritten, because the disk may be full.
void cut_rows(const fs::path& csv, int64_t first_epoch, bool has_anchors) {
  std::optional<std::string> read =
      text_of_file(csv, kLargestWhole, Links::kRefused);
  if (!read && errno != ENOENT) {
    throw Error("run",
                cat("cannot read ", csv.string(), " (", file_fault(),
                    "): its rows would be lost"),
                "check its disk and its permissions, or move it away",
                ExitCode::kResource);
  }
  const std::string all = read.value_or("");
  std::istringstream rows(all);
  std::string kept = header_line(has_anchors);
  std::string line;
  std::getline(rows, line);
  while (std::getline(rows, line)) {
    if (std::strtoll(line.c_str(), nullptr, 10) >= first_epoch) break;
    kept += line + "\n";
  }
  if (kept != all) write_whole_file(csv, kept);
}

Json ranks_json(const std::vector<memory::PhaseMemory::Rank>& ranks) {
  Json all = Json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    all.push_back({{"rank", rank},
                   {"predicted_peak_bytes", ranks[rank].predicted_peak_bytes},
                   {"measured_peak_bytes", ranks[rank].measured_peak_bytes}});
  }
  return all;
}

std::string epoch_text(const EpochRecord& record, int64_t num_epochs) {
  return cat("epoch ", record.epoch + 1, "/", num_epochs);
}

}  // namespace

std::string describe(const EpochRecord& record, int64_t num_epochs) {
  const validation::ValidationResult& v = *record.validation;
  return epoch_text(record, num_epochs) + "  P " + fixed_text(v.precision, 3) +
         "  R " + fixed_text(v.recall, 3) + "  mAP50 " +
         fixed_text(v.map50, 3) + "  mAP50-95 " + fixed_text(v.map, 3);
}

std::string describe_training(const EpochRecord& record, int64_t num_epochs) {
  return epoch_text(record, num_epochs) + "  " +
         losses_text(named_losses(record.has_anchors, record.losses), "  ");
}

std::string training_event_json(const EpochRecord& record, int64_t num_epochs) {
  Json json = {{"epoch", record.epoch}, {"num_epochs", num_epochs}};
  for (const auto& [name, value] :
       named_losses(record.has_anchors, record.losses)) {
    json[name] = value;
  }
  json["steps"] = record.work.steps;
  json["images"] = record.work.images;
  json["seconds"] = record.work.seconds;
  if (record.is_skipped) json["skipped"] = true;
  return json.dump();
}

std::string to_event_json(const EpochRecord& record) {
  const validation::ValidationResult& v = *record.validation;
  Json json = {{"epoch", record.epoch},
               {"precision", v.precision},
               {"recall", v.recall},
               {"map50", v.map50},
               {"map", v.map}};
  for (const auto& [name, value] : named_losses(record.has_anchors, v.losses)) {
    json["val_" + name] = value;
  }
  json["images"] = v.images;
  json["seconds"] = v.seconds;
  json["memory"] = ranks_json(record.validation_memory);
  return json.dump();
}

namespace {

constexpr size_t kThresholds = 101;
// With more classes, only their common curve is written, because each curve
// takes 2.5 kB.
constexpr size_t kMostClassCurves = 20;

// The curve of several classes together, from their counts at IoU 0.5.
PrecisionRecall curve_of(const std::string& tag,
                         const metrics::AveragePrecision& figures, size_t first,
                         size_t last) {
  PrecisionRecall result;
  result.tag = tag;
  for (size_t k = 0; k < kThresholds; ++k) {
    const size_t point = k * (metrics::kNumCurvePoints - 1) / (kThresholds - 1);
    double labels = 0, hits = 0, misses = 0;
    for (size_t i = first; i < last; ++i) {
      const double recall = figures.curves[i].recall[point];
      const double precision = figures.curves[i].precision[point];
      const auto own = static_cast<double>(figures.classes[i].labels);
      labels += own;
      hits += recall * own;
      if (precision > 0) misses += recall * own * (1 / precision - 1);
    }
    result.true_positives.push_back(hits);
    result.false_positives.push_back(misses);
    result.false_negatives.push_back(labels - hits);
    result.precision.push_back(hits + misses > 0 ? hits / (hits + misses) : 1);
    result.recall.push_back(labels > 0 ? hits / labels : 0);
  }
  return result;
}

std::vector<PrecisionRecall> curves_of(
    const validation::ValidationResult& result) {
  const metrics::AveragePrecision& figures = result.curves;
  const size_t num_classes = figures.curves.size();
  std::vector<PrecisionRecall> curves;
  if (num_classes == 0) return curves;
  curves.push_back(curve_of("PR/all classes", figures, 0, num_classes));
  if (num_classes > kMostClassCurves) return curves;
  for (size_t i = 0; i < num_classes; ++i) {
    const int64_t index = figures.classes[i].class_index;
    const auto named = std::ranges::find(result.classes, index,
                                         &validation::ClassResult::class_index);
    if (named == result.classes.end()) continue;
    curves.push_back(
        curve_of("PR/" + valid_utf8(named->name), figures, i, i + 1));
  }
  return curves;
}

// The pictures in the run's folder that TensorBoard shows, too.
std::vector<fs::path> pictures_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::path& entry : entries_of(folder, error)) {
    const std::string name = entry.filename();
    if (name.ends_with(".jpg") &&
        (name == run_files::kLabelsPicture ||
         name.starts_with(run_files::kTrainBatchPrefix) ||
         name.starts_with(run_files::kValidationBatchPrefix))) {
      files.push_back(entry);
    }
  }
  std::ranges::sort(files);
  return files;
}

// The time when an earlier process of the run last wrote more than the head of
// a TensorBoard file. Pictures that existed then were added already.
fs::file_time_type last_shown(const fs::path& folder) {
  constexpr uintmax_t kHead = 100;
  fs::file_time_type last = fs::file_time_type::min();
  std::error_code error;
  for (const fs::path& entry : entries_of(folder, error)) {
    if (entry.filename().string().starts_with(run_files::kTensorboardPrefix) &&
        fs::file_size(entry, error) > kHead) {
      last = std::max(last, fs::last_write_time(entry, error));
    }
  }
  return last;
}

}  // namespace

Results::Results(const fs::path& folder, int64_t first_epoch, bool has_anchors)
    : folder_(folder),
      csv_(folder / run_files::kResults),
      tensorboard_(folder, now()) {
  cut_rows(csv_.path(), first_epoch, has_anchors);
  const fs::file_time_type shown = last_shown(folder_);
  for (const fs::path& file : pictures_in(folder_)) {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(file, error);
    if (time <= shown) known_pictures_[file.filename()] = time;
  }
}

void Results::show_pictures() {
  for (const fs::path& file : pictures_in(folder_)) {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(file, error);
    const auto known = known_pictures_.find(file.filename());
    if (error || (known != known_pictures_.end() && known->second == time)) {
      continue;
    }
    const auto bytes = text_of_file(file, kLargestWhole, Links::kFollowed);
    if (!bytes) continue;
    tensorboard_.add_picture(epoch_, now(), file.stem(), *bytes);
    known_pictures_[file.filename()] = time;
  }
}

void Results::write(const EpochRecord& record) {
  std::vector<std::pair<std::string, double>> scalars;
  std::ostringstream row;
  row << record.epoch;
  for (const auto& [name, value] : columns_of(record)) {
    row << ',';
    if (!value) continue;
    row << *value;
    scalars.emplace_back(name, *value);
  }
  csv_.add(row.str());
  epoch_ = record.epoch;
  tensorboard_.add(record.epoch, now(), scalars);
  if (record.validation) {
    for (const PrecisionRecall& curve : curves_of(*record.validation)) {
      tensorboard_.add_curve(record.epoch, now(), curve);
    }
  }
  show_pictures();
  write_waiting();
}

void Results::write_waiting() {
  if (csv_.write()) return;
  throw Error("run",
              cat("cannot write ", csv_.path().string(), " (", file_fault(),
                  "): its rows wait in memory"),
              "free some space there", ExitCode::kResource);
}

Json metrics_json(const validation::ValidationResult& result) {
  Json classes = Json::array();
  for (const validation::ClassResult& entry : result.classes) {
    classes.push_back({{"name", entry.name},
                       {"labels", entry.labels},
                       {"precision", entry.precision},
                       {"recall", entry.recall},
                       {"map50", entry.map50},
                       {"map", entry.map}});
  }
  return {{"map50", result.map50},
          {"map", result.map},
          {"coco_map50", result.coco_map50},
          {"coco_map", result.coco_map},
          {"precision", result.precision},
          {"recall", result.recall},
          {"per_class", classes},
          {"val_images", result.images},
          {"val_labels", result.labels}};
}

std::string to_json(const validation::ValidationResult& result) {
  return metrics_json(result).dump(2);
}

std::string to_json(const RunSummary& summary) {
  Json json = summary.best_metrics_json.empty()
                  ? Json{{"map50", nullptr}, {"map", nullptr}}
                  : Json::parse(summary.best_metrics_json);
  json["best_epoch"] = summary.best_epoch;
  json["steps"] = summary.steps;
  json["epochs"] = summary.epochs;
  json["images"] = summary.images;
  json["generations"] = summary.generations;
  json["retries"] = summary.retries;
  json["wall_seconds"] = summary.wall_seconds;
  json["peak_bytes"] = summary.peak_bytes;
  json["memory"] = Json::object();
  for (const memory::PhaseMemory& phase : summary.memory) {
    json["memory"][phase.phase] = ranks_json(phase.ranks);
  }
  if (!summary.device_memory.empty()) {
    json["device_memory"] = device_memory_json(summary.device_memory);
  }
  const CheckpointCounts& checkpoints = summary.checkpoints;
  json["checkpoints"] = {{"written", checkpoints.written},
                         {"skipped", checkpoints.skipped},
                         {"failed", checkpoints.failed},
                         {"bytes", checkpoints.bytes}};
  json["ended"] = summary.ended;
  if (!summary.ended.empty()) json["exit_code"] = summary.exit_code;
  return json.dump(2);
}

RunSummary read_summary(const fs::path& path) {
  RunSummary summary;
  Json json = Json::parse(text_or_none(path), nullptr, false);
  if (!json.is_object()) return summary;
  summary.best_epoch = json.value("best_epoch", int64_t{-1});
  summary.wall_seconds = json.value("wall_seconds", 0.0);
  summary.retries = json.value("retries", int64_t{0});
  for (const char* key :
       {"best_epoch", "steps", "epochs", "images", "generations", "retries",
        "wall_seconds", "peak_bytes", "memory", "checkpoints", "ended",
        "exit_code"}) {
    json.erase(key);
  }
  if (!json["map50"].is_null()) summary.best_metrics_json = json.dump();
  return summary;
}

}  // namespace headroom::run
