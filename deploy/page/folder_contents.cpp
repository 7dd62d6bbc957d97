#include "deploy/page/folder_contents.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/records/run_lines.h"
#include "parallel/base/event_kinds.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::page {
namespace {

namespace fs = std::filesystem;
using Event = nlohmann::ordered_json;
using records::shallow_json;
using records::text_member;

constexpr size_t kMostEvents = 500;
constexpr size_t kLongestEvent = 64 << 10;
constexpr int64_t kMostFileBytes = 16 << 20;
constexpr size_t kMostEpochs = 20'000;
constexpr size_t kMostPictures = 200;
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Unix seconds; NaN if the text is no time.
double unix_seconds(const std::string& utc) {
  const auto milliseconds = utc_milliseconds(utc);
  return milliseconds ? static_cast<double>(*milliseconds) / 1000 : kNoNumber;
}

std::string event_text(const Event& event) {
  return event.dump(-1, ' ', false, Event::error_handler_t::replace);
}

std::map<int, EventList::Worker> workers_of(const Event& generation) {
  std::map<int, EventList::Worker> result;
  const auto workers = generation.find("workers");
  if (workers == generation.end() || !workers->is_array()) return result;
  for (const Event& worker : *workers) {
    if (!worker.is_object()) continue;
    const auto rank = worker.find("rank");
    if (rank == worker.end() || !rank->is_number_integer()) continue;
    result[rank->get<int>()] = {text_member(worker, "hostname"),
                                text_member(worker, "worker_id")};
  }
  return result;
}

}  // namespace

std::optional<std::string> WatchedFile::changed() {
  std::error_code error;
  const auto time = fs::last_write_time(path_, error);
  const int64_t size =
      error ? -1 : static_cast<int64_t>(fs::file_size(path_, error));
  if (is_known_ && time == time_ && size == size_) return std::nullopt;
  is_known_ = true;
  time_ = time;
  size_ = size;
  std::string text;
  if (error || size <= 0 || size > kMostFileBytes) return text;
  std::ifstream in(path_, std::ios::binary);
  text.resize(static_cast<size_t>(size));
  in.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  return text;
}

EventList::EventList(const fs::path& run_directory)
    : follower_(run_directory / run_files::kEvents) {}

void EventList::refresh() {
  follower_.read([this] { forget(); },
                 [this](std::string_view line) { take(line); });
}

void EventList::forget() {
  newest_.clear();
  count_ = 0;
  started_ = kNoNumber;
  end_.reset();
  workers_.clear();
}

void EventList::take(std::string_view line) {
  Event event = shallow_json(valid_utf8(line));
  if (!event.is_object()) return;
  ++count_;
  if (event.contains("time")) {
    const double time = unix_seconds(text_member(event, "time"));
    event["time"] = std::isfinite(time) ? Event(time) : Event();
    if (std::isnan(started_)) started_ = time;
  }
  const std::string kind = text_member(event, "event");
  end_.reset();
  if (kind == to_string(EventKind::kRunOver)) {
    const auto exit_code = event.find("exit_code");
    end_ = End{exit_code != event.end() && exit_code->is_number_integer()
                   ? exit_code->get<int>()
                   : 0,
               text_member(event, "reason")};
  }
  if (kind == to_string(EventKind::kGeneration)) workers_ = workers_of(event);
  std::string text = event_text(event);
  if (text.size() > kLongestEvent) {
    // Keep the simple members and drop lists and objects.
    Event brief;
    for (const auto& [key, value] : event.items()) {
      if (!value.is_structured()) brief[key] = value;
    }
    text = event_text(brief);
  }
  if (text.size() > kLongestEvent) return;
  newest_.push_front(std::move(text));
  if (newest_.size() > kMostEvents) newest_.pop_back();
}

namespace {

void find_best(EpochTable& epochs) {
  const auto column = [&](const char* name) {
    return static_cast<size_t>(std::ranges::find(epochs.columns, name) -
                               epochs.columns.begin());
  };
  const size_t map50 = column("metrics/mAP_0.5");
  const size_t map = column("metrics/mAP_0.5:0.95");
  if (map50 == epochs.columns.size() || map == epochs.columns.size()) return;
  double most = -1;
  for (const std::vector<double>& epoch : epochs.rows) {
    const double fitness = 0.1 * epoch[map50] + 0.9 * epoch[map];
    if (!(fitness > most)) continue;
    most = fitness;
    epochs.best = {epoch[0], epoch[map50], epoch[map]};
  }
}

std::string kind_of_picture(const std::string& name) {
  if (name.starts_with("val_batch")) return "validation";
  if (name.starts_with("train_batch")) return "training";
  return "curve";
}

}  // namespace

EpochTable epoch_table(const std::string& csv) {
  records::ResultsTable table = records::results_table(csv, kMostEpochs);
  EpochTable epochs;
  epochs.columns = std::move(table.columns);
  for (const records::ResultsTable::Line& line : table.lines) {
    std::vector<double>& numbers = epochs.rows.emplace_back();
    for (const auto& cell : line.cells) {
      numbers.push_back(cell.value_or(kNoNumber));
    }
  }
  find_best(epochs);
  return epochs;
}

std::vector<Picture> pictures_in(const fs::path& run_directory) {
  std::vector<Picture> pictures;
  std::error_code error;
  fs::directory_iterator entry(run_directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.ends_with(".png") && !name.ends_with(".jpg")) continue;
    struct stat status {};
    // A symbolic link could point to any file.
    if (::lstat(entry->path().c_str(), &status) != 0 ||
        !S_ISREG(status.st_mode)) {
      continue;
    }
    pictures.push_back({name, kind_of_picture(name),
                        static_cast<int64_t>(status.st_size),
                        static_cast<int64_t>(status.st_mtime)});
  }
  std::ranges::sort(pictures, [](const Picture& a, const Picture& b) {
    return std::pair(-a.time, a.name) < std::pair(-b.time, b.name);
  });
  if (pictures.size() > kMostPictures) pictures.resize(kMostPictures);
  return pictures;
}

std::vector<int64_t> checkpoints_in(const fs::path& run_directory) {
  std::vector<int64_t> steps;
  std::error_code error;
  // The checkpoints may still belong to an older run.
  if (fs::exists(run_directory / run_files::kOlderRun, error)) return steps;
  fs::directory_iterator entry(run_directory / run_files::kCheckpoints, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    const auto step = name.starts_with("step-") ? parse_whole(name.substr(5), 0)
                                                : std::nullopt;
    if (step && fs::exists(entry->path() / run_files::kManifest, ignored)) {
      steps.push_back(*step);
    }
  }
  std::ranges::sort(steps);
  return steps;
}

}  // namespace headroom::page
