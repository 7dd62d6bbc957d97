#include "deploy/notify/notifier.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "deploy/notify/mlflow_run.h"
#include "deploy/notify/webhook.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"

namespace headroom::notify {
namespace {

using Clock = std::chrono::steady_clock;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string authorization_for(const WebAddress& address) {
  constexpr const char* kToken = "MLFLOW_TRACKING_TOKEN";
  constexpr const char* kName = "MLFLOW_TRACKING_USERNAME";
  const std::string token = environment(kToken);
  const std::string name = environment(kName);
  if (token.empty() && name.empty()) return "";
  const std::string variable = token.empty() ? kName : kToken;
  if (!address.is_encrypted && !address.is_loopback()) {
    throw Error("mlflow",
                variable + " is set, but " + address.shown() +
                    " is plain HTTP, which everybody on the way can read",
                "give an https:// address, or unset " + variable);
  }
  if (std::any_of(token.begin(), token.end(),
                  [](unsigned char c) { return c <= ' ' || c >= 0x7f; })) {
    throw Error("mlflow", variable + " has a character that no token may have",
                "look for a space or a line feed at its end");
  }
  return token.empty() ? basic_authorization(
                             name, environment("MLFLOW_TRACKING_PASSWORD"))
                       : "Bearer " + token;
}

std::string name_of(const std::filesystem::path& run_directory) {
  std::error_code error;
  const auto whole = std::filesystem::absolute(run_directory, error);
  const auto name = (error ? run_directory : whole).lexically_normal();
  return (name.has_filename() ? name : name.parent_path()).filename();
}

}  // namespace

Addressees addressees_of(const NotifierRequest& request) {
  Addressees result;
  result.experiment = request.experiment;
  if (!request.mlflow.empty()) {
    result.mlflow = parse_web_address("--mlflow", request.mlflow);
    if (result.mlflow->path.find_first_of("?#") != std::string::npos) {
      throw Error("command line",
                  "--mlflow: the address has a '?' or '#', which MLflow's "
                  "interface cannot stand behind",
                  "give the address of the server alone");
    }
    while (result.mlflow->path.ends_with('/')) result.mlflow->path.pop_back();
    result.authorization = authorization_for(*result.mlflow);
  }
  if (!request.webhook.empty()) {
    result.webhook = parse_web_address("--webhook", request.webhook);
  }
  return result;
}

Notifier::Notifier(const Addressees& addressees, const Run& run) : run_(run) {
  const std::string name = name_of(run.directory);
  if (addressees.mlflow) {
    couriers_.push_back(std::make_unique<Courier>(
        std::make_unique<MlflowRun>(
            MlflowRun::Subject{.address = *addressees.mlflow,
                               .authorization = addressees.authorization,
                               .experiment = addressees.experiment,
                               .run_directory = run.directory,
                               .run_name = name,
                               .goes_on = run.goes_on}),
        "MLflow at " + addressees.mlflow->shown(), run.say));
  }
  if (addressees.webhook) {
    const std::filesystem::path events = run.directory / run_files::kEvents;
    couriers_.push_back(std::make_unique<Courier>(
        std::make_unique<Webhook>(
            *addressees.webhook, name,
            records::EventReader(events, records::end_of_lines(events))),
        "the webhook at " + addressees.webhook->shown(), run.say));
  }
  if (addressees.trainjob) {
    couriers_.push_back(std::make_unique<Courier>(
        std::make_unique<TrainJob>(*addressees.trainjob, run.progress),
        "Kubeflow Trainer at " + addressees.trainjob->address.shown(),
        run.say));
  }
}

void Notifier::finish(const RunEnd& end) {
  const Clock::time_point deadline = Clock::now() + kTimeAtEnd;
  for (const auto& courier : couriers_) courier->end(end, deadline);
  const int interrupts = run_.interrupts();
  for (const auto& courier : couriers_) {
    while (!courier->wait(std::chrono::milliseconds(50)) &&
           Clock::now() < deadline && run_.interrupts() == interrupts) {
    }
    courier->give_up();
  }
}

}  // namespace headroom::notify
