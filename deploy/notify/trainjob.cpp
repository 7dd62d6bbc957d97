// Reports a run's progress to Kubeflow Trainer (addressees.h):
//
//   {"trainerStatus": {"progressPercentage": 45, "estimatedRemainingSeconds":
//    120, "metrics": [{"name": "box_loss", "value": "0.0412"}, ...],
//    "lastUpdatedTime": "2026-11-26T12:00:00Z"}}
//
// A failed request is not repeated, because the next request contains newer
// values. At the run's end one request is tried, for 3 s.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "deploy/notify/delivery.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/check.h"
#include "parallel/base/progress.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::notify {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kLongestRequest(3);

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

int64_t whole(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number_integer()
             ? found->get<int64_t>()
             : 0;
}

class TrainJob final : public Delivery {
 public:
  explicit TrainJob(TrainJobServer server) : server_(std::move(server)) {}

  std::string server() const override {
    return "Kubeflow Trainer at " + server_.address.shown();
  }
  std::chrono::seconds time_at_end() const override { return kLongestRequest; }
  bool is_due() const override { return is_new_; }
  std::string left() const override {
    return is_new_ && exit_code_ ? "the run's last progress" : "";
  }

  void take(const Json& line) override {
    const std::string kind = records::text_member(line, "event");
    if (kind == "progress" && whole(line, "num_steps") > 0) {
      progress_ = line;
      is_new_ = true;
      // The pace includes the time of validations.
      pace_.note(whole(line, "step"),
                 std::chrono::duration<double>(
                     std::chrono::steady_clock::now().time_since_epoch())
                     .count());
    }
    if (kind == "run_end") {
      exit_code_ = whole(line, "exit_code");
      is_new_ = is_new_ || !progress_.is_null();
    }
  }

  void send(const Post& post) override {
    // The last report is sent again until it has arrived.
    is_new_ = exit_code_.has_value();
    post({.body = Json{{"trainerStatus", status()}}.dump(),
          .authorization = "Bearer " + read_token(server_.token),
          .authority = server_.authority.string(),
          .limit = kLongestRequest},
         server_.address);
    is_new_ = false;
  }

 private:
  Json status() const {
    constexpr double kLongest = std::numeric_limits<int32_t>::max();
    const int64_t num_steps = whole(progress_, "num_steps");
    const bool is_done = exit_code_ == 0;
    const int64_t step = is_done ? num_steps : whole(progress_, "step");
    Json status;
    // The percentage is rounded down: 100 is reported only when the last step
    // is committed.
    status["progressPercentage"] = static_cast<int>(
        100.0 * static_cast<double>(std::clamp<int64_t>(step, 0, num_steps)) /
        static_cast<double>(num_steps));
    std::optional<double> rest;
    if (!exit_code_) rest = pace_.seconds_left(num_steps);
    if (is_done) rest = 0;
    if (rest) {
      status["estimatedRemainingSeconds"] =
          static_cast<int64_t>(std::clamp(std::ceil(*rest), 0.0, kLongest));
    }
    status["metrics"] = Json::array();
    const auto add = [&](const std::string& name, const std::string& value) {
      status["metrics"].push_back({{"name", name}, {"value", value}});
    };
    if (whole(progress_, "num_epochs") > 0) {
      add("current_epoch", std::to_string(whole(progress_, "epoch") + 1));
      add("total_epochs", std::to_string(whole(progress_, "num_epochs")));
    }
    add("current_step", std::to_string(step));
    add("total_steps", std::to_string(num_steps));
    const Json metrics = progress_.value("metrics", Json::object());
    for (const auto& [name, value] : metrics.items()) {
      if (value.is_number()) {
        add(name, significant_text(value.get<double>(), 6));
      }
    }
    status["lastUpdatedTime"] = whole_seconds(utc_now());
    return status;
  }

  const TrainJobServer server_;
  Json progress_;
  bool is_new_ = false;  // the progress, or the run's end, has not been sent
  std::optional<int64_t> exit_code_;
  Pace pace_;
};

}  // namespace

std::unique_ptr<Delivery> make_trainjob() {
  const auto server = trainjob_server();
  if (!server) {
    throw Error("trainjob", "this is no pod of a TrainJob",
                "start headroom train there");
  }
  return std::make_unique<TrainJob>(*server);
}

}  // namespace headroom::notify
