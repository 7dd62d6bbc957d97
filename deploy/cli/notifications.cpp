#include <unistd.h>

#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "deploy/cli/annex.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/event_programs.h"
#include "deploy/cli/process/child_process.h"
#include "deploy/cli/process/file_descriptor.h"
#include "deploy/notify/addressees.h"
#include "deploy/notify/delivery.h"
#include "parallel/base/check.h"
#include "parallel/base/environment.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;

EventProgram program_of_user(const std::string& name,
                             const Environment& environment) {
  const std::string shown = "--on-event " + name;
  const std::string path = find_program(name);
  if (path.empty()) {
    throw Error("command line", shown + ": there is no such program",
                "name an executable file, or a program in PATH; it takes no "
                "arguments");
  }
  if (access(path.c_str(), X_OK) != 0) {
    throw Error("command line", shown + ": the file may not be executed",
                "chmod +x " + path);
  }
  return {.name = shown, .command = {path}, .environment = environment};
}

// Describes the `notify` command of this executable as a separate process,
// which may crash without ending the run.
EventProgram own_program(const std::string& service, const std::string& name) {
  return {.name = name,
          .command = {fs::read_symlink("/proc/self/exe").string(), "notify",
                      service},
          .environment = process_environment(),
          .speaks_to_user = true};
}

class RequestedNotifications final : public Notifications {
 public:
  RequestedNotifications(const CommandLine& line, Terminal& terminal)
      : terminal_(terminal) {
    if (line.command != "train") return;
    take_mlflow(line);
    if (const std::string address = line.value_of("--webhook");
        !address.empty()) {
      notify::parse_web_address("--webhook", address);
      programs_.push_back(own_program("webhook", "the webhook's program"));
      programs_.back().environment[notify::kWebhookVariable] = address;
    }
    take_trainjob();
    std::istringstream names(line.value_of("--on-event"));
    for (std::string name; std::getline(names, name, '\n');) {
      programs_.push_back(program_of_user(name, users_));
    }
  }

  void begin(const RunRequest& request) override {
    const fs::path record =
        fs::path(request.run_directory) / run_files::kMlflow;
    const bool is_resumed = !request.config.resume.empty();
    std::error_code error;
    if (is_resumed && !script_ && fs::exists(record, error)) {
      terminal_.print("MLflow has this run so far (" + record.string() +
                      "): give --mlflow URI to go on there");
    }
    running_.emplace(
        programs_, request.run_directory, is_resumed,
        [this](const std::string& text) { terminal_.print(text); });
  }
  void take(const std::vector<wire::EventRecord>& events) override {
    running_->take(events);
  }
  void take(const coordinator::RunStatus& status) override {
    running_->take(status);
  }
  void finish(int exit_code, const std::string& reason) override {
    running_->finish(exit_code, reason);
  }

 private:
  void take_mlflow(const CommandLine& line) {
    const std::string address = line.value_of("--mlflow");
    if (address.empty()) {
      if (!line.has("--mlflow-experiment")) return;
      throw Error("command line",
                  "--mlflow-experiment counts with --mlflow alone",
                  "give --mlflow URI too");
    }
    const notify::WebAddress server = notify::parse_mlflow_address(address);
    const std::string python = find_program("python3");
    if (python.empty()) {
      throw Error("command line",
                  "--mlflow needs python3, which is not in PATH",
                  "install Python 3.6 or newer (no further packages), or "
                  "leave out --mlflow");
    }
    script_ = memory_file(notify::mlflow_script());
    Environment environment = users_;
    environment["HEADROOM_MLFLOW"] = server.shown() + server.path;
    environment["HEADROOM_MLFLOW_EXPERIMENT"] =
        line.value_of("--mlflow-experiment");
    programs_.push_back(
        {.name = "MLflow's program",
         // -I: a folder named by PYTHONPATH must not replace Python's modules.
         .command = {python, "-I", cat("/proc/self/fd/", script_->get())},
         .environment = environment,
         .passed_fds = {script_->get()},
         .speaks_to_user = true});
  }

  void take_trainjob() {
    try {
      if (!notify::trainjob_server()) return;
      programs_.push_back(own_program("trainjob", "the TrainJob's program"));
    } catch (const Error& error) {
      terminal_.print(
          "warning: Kubeflow Trainer is not told of the progress: " +
          std::string(error.what()));
    }
  }

  Terminal& terminal_;
  // The user's environment, read before the run creates a token for its own
  // processes.
  const Environment users_ = users_environment();
  std::unique_ptr<FileDescriptor> script_;  // holds mlflow.py
  std::vector<EventProgram> programs_;
  std::optional<EventPrograms> running_;
};

}  // namespace

std::unique_ptr<Notifications> Notifications::requested(const CommandLine& line,
                                                        Terminal& terminal) {
  return std::make_unique<RequestedNotifications>(line, terminal);
}

int notify_command(const std::vector<std::string>& words) {
  return notify::notify(words.size() > 1 ? words[1] : "");
}

}  // namespace headroom::cli
