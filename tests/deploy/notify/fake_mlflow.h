// FakeMlflow: the part of an MLflow server that a run uses, on loopback, with
// the faults that a test sets. It treats metrics of equal name, step and time
// as one, as the real one does.
#pragma once

#include <httplib.h>

#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace headroom::testing {

class FakeMlflow {
 public:
  struct Run {
    std::map<std::string, std::string> parameters, tags;
    std::map<std::tuple<std::string, int64_t, int64_t>, double> metrics;
    std::string status = "RUNNING", name;

    // The values of a metric by step; two of one step are an error.
    std::vector<std::pair<int64_t, double>> values(
        const std::string& key) const {
      std::vector<std::pair<int64_t, double>> all;
      for (const auto& [place, value] : metrics) {
        if (std::get<0>(place) == key) {
          all.emplace_back(std::get<1>(place), value);
        }
      }
      return all;
    }
  };
  // Replaces the server's reply where it returns true.
  using Fault =
      std::function<bool(const httplib::Request&, httplib::Response&)>;

  FakeMlflow() {
    const auto handler = [this](const httplib::Request& request,
                                httplib::Response& response) {
      handle(request, response);
    };
    server_.Get(".*", handler);
    server_.Post(".*", handler);
    server_.Put(".*", handler);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~FakeMlflow() {
    server_.stop();
    thread_.join();
  }
  FakeMlflow(const FakeMlflow&) = delete;
  FakeMlflow& operator=(const FakeMlflow&) = delete;

  std::string address() const {
    return "http://127.0.0.1:" + std::to_string(port_);
  }
  void set_fault(Fault fault) {
    const std::lock_guard lock(mutex_);
    fault_ = std::move(fault);
  }
  // Handles the request, but its reply never arrives.
  void lose_answers(bool loses) {
    const std::lock_guard lock(mutex_);
    loses_answers_ = loses;
  }
  void set_artifact_root(const std::string& root) { artifact_root_ = root; }
  void forget_runs() {
    const std::lock_guard lock(mutex_);
    runs_.clear();
  }
  std::map<std::string, Run> runs() {
    const std::lock_guard lock(mutex_);
    return runs_;
  }
  std::map<std::string, std::string> artifacts() {
    const std::lock_guard lock(mutex_);
    return artifacts_;
  }
  std::vector<std::string> authorizations() {
    const std::lock_guard lock(mutex_);
    return authorizations_;
  }

 private:
  using Json = nlohmann::json;

  void handle(const httplib::Request& request, httplib::Response& response) {
    Fault fault;
    {
      const std::lock_guard lock(mutex_);
      authorizations_.push_back(request.get_header_value("Authorization"));
      fault = fault_;
    }
    if (fault && fault(request, response)) return;
    const std::lock_guard lock(mutex_);
    answer(request, response);
    if (loses_answers_) {
      response = {};
      response.status = 502;
    }
  }

  static void refuse(httplib::Response& response, int status,
                     const std::string& code) {
    response.status = status;
    response.set_content(
        Json{{"error_code", code}, {"message", "no such thing"}}.dump(),
        "application/json");
  }

  Json run_json(const std::string& id) const {
    return {{"info", {{"run_id", id}, {"artifact_uri", artifact_root_ + id}}}};
  }

  void answer(const httplib::Request& request, httplib::Response& response) {
    const std::string artifacts = "/api/2.0/mlflow-artifacts/artifacts/";
    if (request.path.starts_with(artifacts)) {
      artifacts_[request.path.substr(artifacts.size())] = request.body;
      return response.set_content("{}", "application/json");
    }
    const std::string what =
        request.path.substr(std::string("/api/2.0/mlflow/").size());
    const Json asked =
        request.body.empty() ? Json() : Json::parse(request.body);
    Json result = Json::object();
    if (what == "experiments/get-by-name") {
      const std::string name = request.get_param_value("experiment_name");
      if (!experiments_.contains(name)) {
        return refuse(response, 404, "RESOURCE_DOES_NOT_EXIST");
      }
      result["experiment"] = {{"experiment_id", "7"},
                              {"name", name},
                              {"lifecycle_stage", "active"}};
    } else if (what == "experiments/create") {
      experiments_.insert(asked.at("name").get<std::string>());
      result["experiment_id"] = "7";
    } else if (what == "runs/create") {
      const std::string id = "run" + std::to_string(++num_made_);
      Run& run = runs_[id];
      run.name = asked.at("run_name");
      take_tags(asked.at("tags"), run);
      result["run"] = run_json(id);
    } else if (what == "runs/search") {
      result["runs"] = Json::array();
      for (const auto& [id, run] : runs_) {
        const auto mark = run.tags.find("headroom_mark");
        if (mark != run.tags.end() &&
            asked.at("filter") ==
                "tags.headroom_mark = '" + mark->second + "'") {
          result["runs"].push_back(run_json(id));
        }
      }
    } else {
      const auto run = runs_.find(asked.at("run_id").get<std::string>());
      if (run == runs_.end()) {
        return refuse(response, 404, "RESOURCE_DOES_NOT_EXIST");
      }
      change(asked, run->second);
    }
    response.set_content(result.dump(), "application/json");
  }

  static void take_tags(const Json& tags, Run& run) {
    for (const Json& tag : tags) run.tags[tag.at("key")] = tag.at("value");
  }

  static void change(const Json& asked, Run& run) {
    if (asked.contains("status")) run.status = asked["status"];
    if (asked.contains("tags")) take_tags(asked["tags"], run);
    if (asked.contains("params")) {
      for (const Json& one : asked["params"]) {
        run.parameters[one.at("key")] = one.at("value");
      }
    }
    if (!asked.contains("metrics")) return;
    for (const Json& one : asked["metrics"]) {
      run.metrics[{one.at("key"), one.at("step"), one.at("timestamp")}] =
          one.at("value").is_number() ? one.at("value").get<double>() : -1;
    }
  }

  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;  // guards the members below
  Fault fault_;
  bool loses_answers_ = false;
  std::string artifact_root_ = "mlflow-artifacts:/7/";
  std::set<std::string> experiments_;
  std::map<std::string, Run> runs_;
  std::map<std::string, std::string> artifacts_;
  std::vector<std::string> authorizations_;
  int num_made_ = 0;
};

}  // namespace headroom::testing
