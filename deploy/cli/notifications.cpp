#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "deploy/cli/annex.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/launcher_environment.h"
#include "deploy/notify/notifier.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"

namespace headroom::cli {
namespace {

// Throws Error (exit 2) for flags that cannot be met.
notify::Addressees requested_addressees(const CommandLine& line) {
  if (line.command != "train") return {};
  if (line.has("--mlflow-experiment") && !line.has("--mlflow")) {
    throw Error("command line",
                "--mlflow-experiment counts with --mlflow alone",
                "give --mlflow URI too");
  }
  const notify::NotifierRequest request = {
      .mlflow = line.value_of("--mlflow"),
      .experiment = line.value_of("--mlflow-experiment"),
      .webhook = line.value_of("--webhook")};
  return notify::addressees_of(request);
}

std::optional<notify::TrainJobServer> requested_trainjob(
    const CommandLine& line, Terminal& terminal) {
  if (line.command != "train") return std::nullopt;
  try {
    return notify::trainjob_server(process_environment());
  } catch (const Error& error) {
    terminal.print("warning: Kubeflow Trainer is not told of the progress: " +
                   std::string(error.what()));
    return std::nullopt;
  }
}

std::optional<notify::TrainProgress> train_progress(
    const std::optional<coordinator::RunStatus>& status) {
  if (!status || status->progress.num_steps <= 0) return std::nullopt;
  const wire::RunProgress& seen = status->progress;
  return notify::TrainProgress{
      .step = seen.step,
      .num_steps = seen.num_steps,
      .epoch = seen.epoch,
      .num_epochs = seen.num_epochs,
      .metrics = {{"box_loss", seen.box},
                  {"obj_loss", seen.obj},
                  {"cls_loss", seen.cls},
                  {"images_per_second", seen.images_per_second}}};
}

notify::Notifier::Run run_to_notify(const RunRequest& request,
                                    const notify::Addressees& addressees,
                                    Terminal& terminal) {
  const std::filesystem::path record =
      std::filesystem::path(request.run_directory) / run_files::kMlflow;
  std::error_code error;
  if (!request.config.resume.empty() && !addressees.mlflow &&
      std::filesystem::exists(record, error)) {
    terminal.print("MLflow has this run so far (" + record.string() +
                   "): give --mlflow URI to go on there");
  }
  return {.directory = request.run_directory,
          .goes_on = !request.config.resume.empty(),
          .say = [&terminal](const std::string& text) { terminal.print(text); },
          .interrupts = interrupts::count,
          .progress = nullptr};
}

class RequestedNotifications final : public Notifications {
 public:
  RequestedNotifications(notify::Addressees addressees, Terminal& terminal)
      : addressees_(std::move(addressees)), terminal_(terminal) {}

  bool need_status() const override { return addressees_.trainjob.has_value(); }

  void begin(const RunRequest& request,
             std::shared_ptr<const StatusBox> newest) override {
    notify::Notifier::Run run = run_to_notify(request, addressees_, terminal_);
    run.progress = [newest] { return train_progress(newest->get()); };
    notifier_.emplace(addressees_, run);
  }

  void finish(int exit_code, const std::string& reason) override {
    notifier_->finish({exit_code, reason});
  }

 private:
  const notify::Addressees addressees_;
  Terminal& terminal_;
  std::optional<notify::Notifier> notifier_;
};

}  // namespace

std::unique_ptr<Notifications> Notifications::requested(const CommandLine& line,
                                                        Terminal& terminal) {
  notify::Addressees addressees = requested_addressees(line);
  addressees.trainjob = requested_trainjob(line, terminal);
  return std::make_unique<RequestedNotifications>(std::move(addressees),
                                                  terminal);
}

}  // namespace headroom::cli
