#include "deploy/records/run_lines.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"

namespace headroom::records {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepestJson = 64;

std::optional<int64_t> whole_member(const Json& object, const char* key) {
  const auto member = object.find(key);
  if (member == object.end() || !member->is_number_integer()) {
    return std::nullopt;
  }
  return member->get<int64_t>();
}

bool true_member(const Json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && *member == true;
}

double number_member(const Json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_number()
             ? member->get<double>()
             : std::numeric_limits<double>::quiet_NaN();
}

// The list under `key`; an empty list if the member is missing or not a list.
const Json& list_member(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const auto member = object.find(key);
  return member != object.end() && member->is_array() ? *member : kNone;
}

std::optional<SampleRange> sample_range(const Json& samples) {
  if (!samples.is_object()) return std::nullopt;
  const auto seed = samples.find("seed");
  const auto epoch = whole_member(samples, "epoch");
  const auto begin = whole_member(samples, "begin");
  const auto end = whole_member(samples, "end");
  if (seed == samples.end() || !seed->is_number_integer() || !epoch || !begin ||
      !end) {
    return std::nullopt;
  }
  return SampleRange{seed->get<uint64_t>(), *epoch, *begin, *end};
}

std::optional<EventLine> event_line(std::string_view text) {
  const Json line = shallow_json(text);
  if (!line.is_object()) return std::nullopt;
  return EventLine{
      .kind = text_member(line, "event"),
      .sequence = whole_member(line, "sequence").value_or(0),
      .step = whole_member(line, "step").value_or(0),
      .rank = static_cast<int>(whole_member(line, "rank").value_or(-1)),
      .reason = text_member(line, "reason"),
      .time = text_member(line, "time"),
      .warning = true_member(line, "warning"),
      .epoch = whole_member(line, "epoch"),
      .generation = whole_member(line, "generation"),
      .exit_code = whole_member(line, "exit_code"),
      .state = text_member(line, "state"),
      .json = std::string(text)};
}

}  // namespace

Json shallow_json(std::string_view text) {
  bool is_deep = false;
  Json json = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, const Json&) {
        if (depth > kDeepestJson) is_deep = true;
        return !is_deep;
      },
      /*allow_exceptions=*/false);
  return is_deep ? Json(Json::value_t::discarded) : json;
}

std::string text_member(const Json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string()
             ? member->get<std::string>()
             : "";
}

NamedLosses losses_in(const Json& object) {
  NamedLosses losses;
  for (const char* name : kAllLossNames) {
    const auto member = object.find(name);
    if (member == object.end() || !member->is_number()) continue;
    losses.push_back({name, member->get<double>()});
  }
  return losses;
}

std::string file_text(const std::filesystem::path& file) {
  return text_or_none(file, Links::kRefused);
}

std::string last_lines(const std::filesystem::path& file, size_t most_bytes) {
  const RegularFile opened(file, Links::kRefused);
  const uint64_t size = opened.size();
  // One byte more is read: it shows whether the first line is complete.
  const uint64_t begin = size > most_bytes ? size - most_bytes - 1 : 0;
  std::string text = opened.read(begin, size - begin).value_or("");
  text.erase(text.rfind('\n') + 1);
  if (begin > 0) text.erase(0, text.find('\n') + 1);
  return text;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t end = text.find('\n'); end != std::string_view::npos;
       end = text.find('\n')) {
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string without_samples(std::string_view line) {
  // A JSON string cannot contain these bytes, because its quotes are escaped.
  constexpr std::string_view kBegin = "\"samples\":[";
  const size_t begin = line.find(kBegin);
  const size_t end = line.find(']', begin);
  if (end == std::string_view::npos) return std::string(line);
  return cat(line.substr(0, begin + kBegin.size()), line.substr(end));
}

Json object_in(const std::filesystem::path& file) {
  Json json = shallow_json(file_text(file));
  return json.is_object() ? std::move(json) : Json::object();
}

std::vector<int64_t> checkpoints_in(
    const std::filesystem::path& run_directory) {
  namespace fs = std::filesystem;
  std::vector<int64_t> steps;
  std::error_code error;
  if (fs::exists(run_directory / run_files::kOlderRun, error)) return steps;
  for (const fs::path& folder :
       entries_of(run_directory / run_files::kCheckpoints, error)) {
    std::error_code ignored;
    const std::string name = folder.filename().string();
    const auto step = name.starts_with("step-") ? parse_whole(name.substr(5), 0)
                                                : std::nullopt;
    if (step && fs::exists(folder / run_files::kManifest, ignored)) {
      steps.push_back(*step);
    }
  }
  std::ranges::sort(steps);
  return steps;
}

std::optional<StepLine> step_line(std::string_view line, Samples samples) {
  constexpr int64_t kMostRanks = 4096;
  const Json json = samples == Samples::kRead
                        ? shallow_json(line)
                        : shallow_json(without_samples(line));
  if (!json.is_object()) return std::nullopt;
  const std::optional<int64_t> number = whole_member(json, "step");
  if (!number) return std::nullopt;
  const Json& rates = list_member(json, "lr");
  StepLine step = {
      .step = *number,
      .epoch = whole_member(json, "epoch"),
      .generation = whole_member(json, "generation"),
      .epoch_samples = whole_member(json, "epoch_samples"),
      .loss = number_member(json, "loss"),
      .losses = losses_in(json),
      .grad_norm = number_member(json, "grad_norm"),
      .images_per_second = number_member(json, "images_per_second"),
      .lr = !rates.empty() && rates[0].is_number() ? rates[0].get<double>()
                                                   : number_member(json, "lr")};
  const auto list = json.find("samples");
  if (samples == Samples::kRead && list != json.end()) {
    step.range = sample_range(*list);
    const bool is_list = list->is_array() &&
                         std::ranges::all_of(*list, &Json::is_number_integer);
    if (is_list) step.samples = list->get<std::vector<int64_t>>();
    step.has_samples = is_list || step.range;
  }
  for (const Json& bytes : list_member(json, "memory")) {
    const auto rank =
        bytes.is_object() ? whole_member(bytes, "rank") : std::nullopt;
    if (!rank || *rank < 0 || *rank >= kMostRanks) continue;
    step.memory.push_back({static_cast<int>(*rank),
                           number_member(bytes, "predicted_peak_bytes"),
                           number_member(bytes, "measured_peak_bytes")});
  }
  return step;
}

std::optional<StepLine> last_step(const std::filesystem::path& run_directory) {
  const std::string text =
      last_lines(run_directory / run_files::kSteps, kLastBytes);
  const std::vector<std::string_view> lines = lines_of(text);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (auto step = step_line(*line, Samples::kLeftOut)) return step;
  }
  return std::nullopt;
}

std::deque<EventLine> last_events(const std::filesystem::path& run_directory,
                                  size_t most) {
  const std::string text =
      last_lines(run_directory / run_files::kEvents, kLastBytes);
  const std::vector<std::string_view> lines = lines_of(text);
  std::deque<EventLine> events;
  for (auto line = lines.rbegin(); line != lines.rend() && events.size() < most;
       ++line) {
    if (auto event = event_line(*line)) events.push_front(std::move(*event));
  }
  return events;
}

}  // namespace headroom::records
