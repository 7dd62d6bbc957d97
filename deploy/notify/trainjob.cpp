#include "deploy/notify/trainjob.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::notify {
namespace {

using std::chrono::milliseconds;

constexpr const char* kUrl = "KUBEFLOW_TRAINER_SERVER_URL";
constexpr const char* kAuthority = "KUBEFLOW_TRAINER_SERVER_CA_CERT";
constexpr const char* kToken = "KUBEFLOW_TRAINER_SERVER_TOKEN";
constexpr milliseconds kLongestRequest = std::chrono::seconds(3);

std::string value_of(const std::map<std::string, std::string>& environment,
                     const char* name) {
  const auto found = environment.find(name);
  return found != environment.end() ? found->second : "";
}

Error refused(const std::string& what) {
  return Error("trainjob", what,
               "see what Kubeflow Trainer gives its pods, or unset " +
                   std::string(kUrl));
}

// Reads the token. Throws Undelivered: the file may exist at the next try.
std::string read_token(const std::filesystem::path& file) {
  constexpr size_t kLongest = 64 << 10;
  std::ifstream in(file, std::ios::binary);
  std::string token{std::istreambuf_iterator<char>(in), {}};
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) {
    token.pop_back();
  }
  if (token.empty() || token.size() > kLongest ||
      std::any_of(token.begin(), token.end(),
                  [](unsigned char c) { return c <= ' ' || c >= 0x7f; })) {
    throw Undelivered(file.string() + " holds no token");
  }
  return token;
}

// "2026-11-26T12:00:00.123Z" -> "2026-11-26T12:00:00Z", Kubernetes's form.
std::string whole_seconds(const std::string& time) {
  const size_t dot = time.find('.');
  return dot == std::string::npos ? time : time.substr(0, dot) + "Z";
}

}  // namespace

std::optional<TrainJobServer> trainjob_server(
    const std::map<std::string, std::string>& environment) {
  const std::string url = value_of(environment, kUrl);
  if (url.empty()) return std::nullopt;
  TrainJobServer server{.address = parse_web_address(kUrl, url),
                        .authority = value_of(environment, kAuthority),
                        .token = value_of(environment, kToken)};
  if (!server.address.is_encrypted && !server.address.is_loopback()) {
    throw refused(std::string(kUrl) +
                  " is plain HTTP, which everybody on the way can read");
  }
  if (server.token.empty()) throw refused(std::string(kToken) + " is not set");
  if (server.address.is_encrypted && server.authority.empty()) {
    throw refused(std::string(kAuthority) + " is not set");
  }
  return server;
}

std::string trainer_status(const TrainProgress& progress,
                           std::optional<double> seconds,
                           const std::string& time) {
  constexpr double kLongest = std::numeric_limits<int32_t>::max();
  nlohmann::ordered_json status;
  if (progress.num_steps > 0) {
    const int64_t step =
        std::clamp<int64_t>(progress.step, 0, progress.num_steps);
    // Rounded down: 100 is reported only when the last step is committed.
    status["progressPercentage"] =
        static_cast<int>(100.0 * static_cast<double>(step) /
                         static_cast<double>(progress.num_steps));
  }
  if (seconds && std::isfinite(*seconds)) {
    status["estimatedRemainingSeconds"] =
        static_cast<int64_t>(std::clamp(std::ceil(*seconds), 0.0, kLongest));
  }
  status["metrics"] = nlohmann::ordered_json::array();
  const auto add = [&](const std::string& name, const std::string& value) {
    status["metrics"].push_back({{"name", name}, {"value", value}});
  };
  if (progress.num_epochs > 0) {
    add("current_epoch", std::to_string(progress.epoch + 1));
    add("total_epochs", std::to_string(progress.num_epochs));
  }
  if (progress.num_steps > 0) {
    add("current_step", std::to_string(progress.step));
    add("total_steps", std::to_string(progress.num_steps));
  }
  for (const auto& [name, value] : progress.metrics) {
    if (std::isfinite(value)) add(name, significant_text(value, 6));
  }
  status["lastUpdatedTime"] = whole_seconds(time);
  return nlohmann::ordered_json{{"trainerStatus", status}}.dump();
}

TrainJob::TrainJob(TrainJobServer server,
                   std::function<std::optional<TrainProgress>()> progress)
    : server_(std::move(server)),
      progress_(std::move(progress)),
      client_(server_.address, "", server_.authority.string()) {}

// Estimated from the steps that this process has seen, including validations.
std::optional<double> TrainJob::remaining_seconds(
    const TrainProgress& progress) {
  const Clock::time_point now = Clock::now();
  if (!first_step_ || progress.step < first_step_->second) {
    first_step_ = {now, progress.step};
  }
  const auto steps = static_cast<double>(progress.step - first_step_->second);
  if (steps <= 0 || progress.num_steps <= 0) return std::nullopt;
  const std::chrono::duration<double> passed = now - first_step_->first;
  return passed.count() / steps *
         static_cast<double>(
             std::max<int64_t>(0, progress.num_steps - progress.step));
}

std::vector<std::string> TrainJob::advance(const RunEnd* end,
                                           milliseconds limit) {
  if (end == nullptr) {
    const Clock::time_point now = Clock::now();
    if (last_try_ && now - *last_try_ < kInterval) return {};
    post(nullptr, limit);
    return {};
  }
  if (has_tried_end_) return {};
  has_tried_end_ = true;
  client_.go_on();
  try {
    post(end, limit);
  } catch (const Undelivered& failure) {
    return {"warning: Kubeflow Trainer at " + server_.address.shown() +
            " has not got the run's last progress (" + failure.what() + ")"};
  }
  return {};
}

void TrainJob::post(const RunEnd* end, milliseconds limit) {
  const std::optional<TrainProgress> progress = progress_();
  if (!progress || progress->num_steps <= 0) return;
  last_try_ = Clock::now();
  const std::optional<double> seconds = remaining_seconds(*progress);
  const bool is_done = end != nullptr && end->exit_code == 0;
  TrainProgress said = *progress;
  std::optional<double> rest = seconds;
  if (end != nullptr) rest.reset();
  if (is_done) rest = 0;
  if (is_done) said.step = said.num_steps;
  require_good(
      client_.send({.path = "",
                    .body = trainer_status(said, rest, utc_now()),
                    .authorization = "Bearer " + read_token(server_.token)},
                   std::min(limit, kLongestRequest)));
}

std::string TrainJob::left(const RunEnd* end) const {
  return end != nullptr && !has_tried_end_ ? "the run's last progress" : "";
}

}  // namespace headroom::notify
