#include "deploy/notify/mlflow_run.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>
#include <utility>

#include "configs/options.h"
#include "configs/run_config.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/event_kinds.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::notify {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kApi = "/api/2.0/mlflow/";
constexpr const char* kArtifactApi = "/api/2.0/mlflow-artifacts/artifacts/";
constexpr const char* kArtifactScheme = "mlflow-artifacts:/";
constexpr const char* kOther =
    "an answer that is not MLflow's; see the address";
constexpr const char* kMarkTag = "headroom_mark";
// MLflow allows 1,000 metrics and 100 parameters per request.
constexpr size_t kEpochsAtOnce = 50;
constexpr size_t kParametersAtOnce = 100;
// Older servers refuse longer values.
constexpr size_t kLongestValue = 500;
constexpr int kMostWaits = 4;
// Weights that improve in every epoch are not sent in every epoch.
constexpr auto kWeightsInterval = std::chrono::seconds(60);
// Uploads take longer than messages.
constexpr auto kFileLimit = std::chrono::minutes(10);

std::string text_in(const Json& json, const char* key) {
  return json.is_object() ? records::text_member(json, key) : "";
}

// All lines of results.csv; none if it does not exist.
records::ResultsTable read_results(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string csv{std::istreambuf_iterator<char>(in), {}};
  return records::results_table(csv);
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Whether an id may be used in an address or a filter.
bool is_plain(const std::string& id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_';
         });
}

// The path after "mlflow-artifacts:/"; "" if the server does not store
// artifacts itself, or names an invalid path.
std::string artifact_path(const std::string& uri) {
  if (!uri.starts_with(kArtifactScheme)) return "";
  std::string path = uri.substr(std::string(kArtifactScheme).size());
  if (path.starts_with('/')) {  // "//HOST/PATH"
    const size_t slash = path.find('/', 1);
    path = slash == std::string::npos ? "" : path.substr(slash + 1);
  }
  const bool is_sound =
      path.find("..") == std::string::npos &&
      std::all_of(path.begin(), path.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' ||
               c == '/';
      });
  return is_sound ? path : "";
}

std::string draw_mark() {
  std::random_device source;
  std::string mark;
  for (int i = 0; i < 4; ++i) {
    std::array<char, 9> digits{};
    std::snprintf(digits.data(), digits.size(), "%08x", source());
    mark += digits.data();
  }
  return mark;
}

// JSON has no such numbers; MLflow accepts these strings instead.
Json number_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// Many servers refuse a colon in a metric's name.
std::string metric_name(std::string column) {
  std::ranges::replace(column, ':', '-');
  return column;
}

Json pair_json(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", short_line(value, kLongestValue)}};
}

int64_t now_milliseconds() { return *utc_milliseconds(utc_now()); }

std::optional<fs::file_time_type> written(const fs::path& file) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(file, error);
  if (error) return std::nullopt;
  return time;
}

const char* state_of(int exit_code) {
  if (exit_code == static_cast<int>(ExitCode::kDone)) return "FINISHED";
  return exit_code == static_cast<int>(ExitCode::kInterrupted) ? "KILLED"
                                                               : "FAILED";
}

}  // namespace

MlflowRun::MlflowRun(Subject subject)
    : subject_(std::move(subject)),
      client_(subject_.address, subject_.authorization) {
  const fs::path& folder = subject_.run_directory;
  picture_.file = folder / run_files::kResultsPicture;
  weights_.file = folder / run_files::kWeights / run_files::kBestWeights;
  if (!subject_.goes_on) older_run_ = written(folder / run_files::kRun);
  if (subject_.goes_on) {
    read_record();
  } else {
    record_.first_event = static_cast<int64_t>(
        records::end_of_lines(folder / run_files::kEvents));
  }
}

// Whether the directory's files belong to this run: a new run leaves an older
// run's files there until it has committed a step.
bool MlflowRun::is_begun() {
  std::error_code error;
  const auto run = written(subject_.run_directory / run_files::kRun);
  is_begun_ =
      is_begun_ ||
      (run && run != older_run_ &&
       !fs::exists(subject_.run_directory / run_files::kOlderRun, error));
  return is_begun_;
}

void MlflowRun::read_record() {
  std::ifstream file(subject_.run_directory / run_files::kMlflow);
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object()) return;
  Record record{.server = text_in(json, "server"),
                .experiment = text_in(json, "experiment"),
                .experiment_id = text_in(json, "experiment_id"),
                .run_id = text_in(json, "run_id"),
                .artifacts = text_in(json, "artifacts"),
                .mark = text_in(json, "mark")};
  const std::string server = subject_.address.shown() + subject_.address.path;
  if (record.server != server || record.experiment != subject_.experiment) {
    say("MLflow: the run was in experiment " +
        short_line(record.experiment, 100) + " at " +
        short_line(record.server, 200) + "; here it begins anew");
    return;
  }
  if (!is_plain(record.mark) ||
      (!record.run_id.empty() && !is_plain(record.run_id))) {
    return;
  }
  const auto whole = [&](const char* key) {
    const auto member = json.find(key);
    return member != json.end() && member->is_number_integer()
               ? std::max<int64_t>(member->get<int64_t>(), 0)
               : 0;
  };
  record.epochs = whole("epochs");
  record.first_event = whole("first_event");
  record.parameters = json.contains("parameters") && json["parameters"] == true;
  record_ = record;
  may_be_made_ = record.run_id.empty();
  // A resumed run has cut the lines that it will write again.
  const records::ResultsTable results =
      read_results(subject_.run_directory / run_files::kResults);
  for (const records::ResultsTable::Line& line : results.lines) {
    if (static_cast<int64_t>(arrived_.size()) == record_.epochs) break;
    arrived_.push_back(line.text);
  }
}

void MlflowRun::write_record() const {
  const Json json = {{"server", record_.server},
                     {"experiment", record_.experiment},
                     {"experiment_id", record_.experiment_id},
                     {"run_id", record_.run_id},
                     {"artifacts", record_.artifacts},
                     {"mark", record_.mark},
                     {"epochs", record_.epochs},
                     {"parameters", record_.parameters},
                     {"first_event", record_.first_event}};
  try {
    write_whole_file(subject_.run_directory / run_files::kMlflow,
                     json.dump(2) + "\n");
  } catch (const Error&) {
    // The disk is full; the run reports that. Only a resume needs the record.
  }
}

void MlflowRun::read_run() {
  const fs::path& folder = subject_.run_directory;
  const fs::path results = folder / run_files::kResults;
  // File times are coarse: two lines may share one, so compare the size too.
  std::error_code ignored;
  const std::pair state{written(results), fs::file_size(results, ignored)};
  if (std::exchange(read_results_, state) != state) {
    results_ = read_results(results);
  }
  if (!events_) {
    events_.emplace(folder / run_files::kEvents,
                    static_cast<uint64_t>(record_.first_event));
  }
  for (const records::EventLine& event : events_->take()) {
    if (event.kind == to_string(EventKind::kEpoch) && event.epoch) {
      if (const auto time = utc_milliseconds(event.time)) {
        times_[*event.epoch] = *time;
      }
    }
    if (event.kind == to_string(EventKind::kGeneration) && event.generation) {
      tags_["headroom.generation"] = std::to_string(*event.generation);
    }
    if (event.kind == to_string(EventKind::kLossOfProcess)) ++losses_;
    if (event.kind == to_string(EventKind::kOutOfMemory)) ++retries_;
  }
  tags_["headroom.processes_lost"] = std::to_string(losses_);
  tags_["headroom.out_of_memory_retries"] = std::to_string(retries_);
  // Everything after the first line that differs must be sent again.
  size_t same = 0;
  while (same < std::min(arrived_.size(), results_.lines.size()) &&
         arrived_[same] == results_.lines[same].text) {
    ++same;
  }
  arrived_.resize(same);
}

std::vector<std::string> MlflowRun::advance(const RunEnd* end,
                                            std::chrono::milliseconds limit) {
  limit_ = limit;
  if (end != nullptr) client_.go_on();
  if (is_begun()) {
    read_run();
    if (!is_open_) open();
    send_epochs(end);
    send_tags(end);
    if (end != nullptr) send_state(end);
    if (!record_.parameters) send_parameters();
    if (end != nullptr) send_artifact(picture_, true);
    send_artifact(weights_, end != nullptr);
  }
  return std::exchange(lines_, {});
}

std::string MlflowRun::left(const RunEnd* end) const {
  if (!is_begun_) return "";
  std::vector<std::string> parts;
  // The request may have started before the newest epochs were written.
  const size_t known =
      end == nullptr
          ? results_.lines.size()
          : read_results(subject_.run_directory / run_files::kResults)
                .lines.size();
  const int64_t waiting =
      static_cast<int64_t>(known) - static_cast<int64_t>(arrived_.size());
  if (!record_.parameters) parts.push_back("the parameters");
  if (waiting > 0) {
    parts.push_back("the metrics of " + counted(waiting, "epoch"));
  }
  if (end != nullptr && !has_state_) parts.push_back("the end's state");
  if (end != nullptr && takes_artifacts_) {
    for (const Artifact* artifact : {&picture_, &weights_}) {
      if (is_due(*artifact)) parts.push_back(artifact->file.filename());
    }
  }
  return joined(parts, ", ");
}

std::string MlflowRun::call(const std::string& method, const std::string& path,
                            const std::string& body) {
  const WebAnswer answer = client_.send(
      {.method = method, .path = kApi + path, .body = body}, limit_);
  if (answer.status == 404 && !record_.run_id.empty() && is_open_ &&
      text_in(Json::parse(answer.body, nullptr, false), "error_code") ==
          "RESOURCE_DOES_NOT_EXIST") {
    forget_run();
    throw Undelivered("it has no such run any more");
  }
  require_good(answer);
  if (!Json::parse(answer.body, nullptr, false).is_object()) {
    throw Undelivered(kOther);
  }
  return answer.body;
}

void MlflowRun::forget_run() {
  say("MLflow: run " + record_.run_id +
      " is gone there; a new one gets all of it");
  const int64_t first_event = record_.first_event;
  record_ = {};
  record_.first_event = first_event;
  is_open_ = may_be_made_ = false;
  arrived_.clear();
  sent_tags_.clear();
  picture_.sent.reset();
  weights_.sent.reset();
}

// --- The run on the server

void MlflowRun::open() {
  if (record_.mark.empty()) {
    record_.mark = draw_mark();
    record_.server = subject_.address.shown() + subject_.address.path;
    record_.experiment = subject_.experiment;
    write_record();
  }
  if (record_.run_id.empty()) {
    record_.experiment_id = find_experiment();
    if (!find_made_run()) make_run();
    write_record();
  } else {
    is_open_ = true;  // call() finds out if the run was deleted
    const std::string body =
        dumped({{"run_id", record_.run_id}, {"status", "RUNNING"}});
    try {
      call("POST", "runs/update", body);
    } catch (const Undelivered&) {
      is_open_ = false;
      throw;
    }
  }
  is_open_ = true;
  takes_artifacts_ = !artifact_path(record_.artifacts).empty();
  say("MLflow: " + subject_.address.shown() + subject_.address.path +
      "/#/experiments/" + record_.experiment_id + "/runs/" + record_.run_id);
  if (!takes_artifacts_) {
    say("MLflow: the server leaves artifacts to its clients (" +
        short_line(record_.artifacts, 200) + "), so " +
        std::string(run_files::kResultsPicture) + " and " +
        run_files::kBestWeights +
        " are not sent; mlflow server "
        "--serve-artifacts takes them");
  }
}

std::string MlflowRun::find_experiment() {
  const auto named = [&] {
    return client_.send({.method = "GET",
                         .path = std::string(kApi) +
                                 "experiments/get-by-name?experiment_name=" +
                                 url_encoded(subject_.experiment)},
                        limit_);
  };
  WebAnswer answer = named();
  if (answer.status == 404) {
    const WebAnswer made =
        client_.send({.path = std::string(kApi) + "experiments/create",
                      .body = dumped({{"name", subject_.experiment}})},
                     limit_);
    // Another client may have created it in the meantime.
    answer = named();
    if (!answer.is_good()) require_good(made);
  }
  require_good(answer);
  const Json json = Json::parse(answer.body, nullptr, false);
  const Json experiment =
      json.is_object() ? json.value("experiment", Json()) : Json();
  const std::string id = text_in(experiment, "experiment_id");
  if (!is_plain(id)) {
    throw Undelivered(kOther);
  }
  if (text_in(experiment, "lifecycle_stage") == "deleted") {
    throw Undelivered("experiment " + short_line(subject_.experiment, 100) +
                      " is deleted there: restore it, or choose another "
                      "--mlflow-experiment");
  }
  return id;
}

bool MlflowRun::find_made_run() {
  if (!may_be_made_) return false;
  const Json json =
      Json::parse(call("POST", "runs/search",
                       dumped({{"experiment_ids", {record_.experiment_id}},
                               {"filter", "tags." + std::string(kMarkTag) +
                                              " = '" + record_.mark + "'"},
                               {"max_results", 1}})));
  const Json runs = json.value("runs", Json::array());
  if (!runs.is_array() || runs.empty()) return false;
  take_run(dumped({{"run", runs.front()}}));
  return true;
}

void MlflowRun::make_run() {
  may_be_made_ = true;
  const Json tags = {pair_json(kMarkTag, record_.mark),
                     pair_json("mlflow.source.name", "headroom"),
                     pair_json("mlflow.source.type", "LOCAL")};
  take_run(call("POST", "runs/create",
                dumped({{"experiment_id", record_.experiment_id},
                        {"run_name", valid_utf8(subject_.run_name)},
                        {"start_time", now_milliseconds()},
                        {"tags", tags}})));
}

void MlflowRun::take_run(const std::string& answer) {
  const Json json = Json::parse(answer, nullptr, false);
  const Json run = json.value("run", Json());
  const Json info = run.is_object() ? run.value("info", Json()) : Json();
  const std::string id = text_in(info, "run_id");
  if (!is_plain(id)) {
    throw Undelivered(kOther);
  }
  record_.run_id = id;
  record_.artifacts = text_in(info, "artifact_uri");
}

// --- What is sent

void MlflowRun::log_batch(const std::string& body) {
  Json json = Json::parse(body);
  json["run_id"] = record_.run_id;
  const std::string answer = call("POST", "runs/log-batch", dumped(json));
  // Anything but an empty answer comes from another server: nothing stored.
  if (!Json::parse(answer).empty()) throw Undelivered(kOther);
}

void MlflowRun::send_parameters() {
  const fs::path file = subject_.run_directory / run_files::kRun;
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const configs::RunConfig config =
      configs::parse_run_config(text, file.string());
  Json parameters = Json::array();
  for (const configs::Option& option : configs::run_options()) {
    parameters.push_back(
        pair_json(option.key, configs::value_text(config, option)));
  }
  std::string refusal;
  for (size_t i = 0; i < parameters.size(); i += kParametersAtOnce) {
    Json part = Json::array();
    for (size_t k = i; k < std::min(i + kParametersAtOnce, parameters.size());
         ++k) {
      part.push_back(parameters[k]);
    }
    try {
      log_batch(dumped({{"params", part}}));
    } catch (const Undelivered& failure) {
      // A server refuses values that are too long, or that have changed.
      if (failure.http_status() != 400) throw;
      refusal = failure.what();
    }
  }
  if (!refusal.empty()) {
    say("MLflow: the server refuses parameters, which are not sent again (" +
        refusal + ")");
  }
  record_.parameters = true;
  write_record();
}

void MlflowRun::send_epochs(const RunEnd* end) {
  // The event with an epoch's time is written a moment after its line.
  const bool waits = end == nullptr &&
                     arrived_.size() < results_.lines.size() &&
                     !times_.contains(results_.lines.back().epoch) &&
                     ++waits_for_event_ < kMostWaits;
  if (waits) return;
  waits_for_event_ = 0;
  while (arrived_.size() < results_.lines.size()) {
    const size_t first = arrived_.size();
    const size_t last = std::min(first + kEpochsAtOnce, results_.lines.size());
    Json metrics = Json::array();
    for (size_t i = first; i < last; ++i) {
      const records::ResultsTable::Line& line = results_.lines[i];
      const auto known = times_.find(line.epoch);
      // A line that is sent again keeps the time that it had.
      const int64_t time =
          line_times_
              .emplace(line.text, known != times_.end() ? known->second
                                                        : now_milliseconds())
              .first->second;
      for (size_t column = 1; column < line.cells.size(); ++column) {
        if (!line.cells[column]) continue;
        metrics.push_back({{"key", metric_name(results_.columns[column])},
                           {"value", number_json(*line.cells[column])},
                           {"timestamp", time},
                           {"step", line.epoch}});
      }
    }
    log_batch(dumped({{"metrics", metrics}}));
    for (size_t i = first; i < last; ++i)
      arrived_.push_back(results_.lines[i].text);
    record_.epochs = static_cast<int64_t>(arrived_.size());
    write_record();
  }
}

void MlflowRun::send_tags(const RunEnd* end) {
  if (end != nullptr) tags_["headroom.end"] = end->reason;
  Json changed = Json::array();
  for (const auto& [key, value] : tags_) {
    const auto sent = sent_tags_.find(key);
    if (sent == sent_tags_.end() || sent->second != value) {
      changed.push_back(pair_json(key, value));
    }
  }
  if (changed.empty()) return;
  log_batch(dumped({{"tags", changed}}));
  sent_tags_ = tags_;
}

void MlflowRun::send_state(const RunEnd* end) {
  if (has_state_) return;
  call("POST", "runs/update",
       dumped({{"run_id", record_.run_id},
               {"status", state_of(end->exit_code)},
               {"end_time", now_milliseconds()}}));
  has_state_ = true;
}

bool MlflowRun::is_due(const Artifact& artifact) const {
  const auto time = written(artifact.file);
  return time && time != artifact.sent;
}

void MlflowRun::send_artifact(Artifact& artifact, bool is_end) {
  if (!takes_artifacts_ || !is_due(artifact)) return;
  const bool was_sent = artifact.when != Clock::time_point{};
  if (!is_end && was_sent && Clock::now() - artifact.when < kWeightsInterval) {
    return;
  }
  const auto time = written(artifact.file);
  const WebAnswer answer =
      client_.send({.method = "PUT",
                    .path = kArtifactApi + artifact_path(record_.artifacts) +
                            "/" + artifact.file.filename().string(),
                    .file = artifact.file},
                   is_end ? limit_ : std::chrono::milliseconds(kFileLimit));
  require_good(answer);
  artifact.sent = time;
  artifact.when = Clock::now();
}

}  // namespace headroom::notify
