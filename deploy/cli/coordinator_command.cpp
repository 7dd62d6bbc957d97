// headroom coordinator: runs the server alone. The supervisor passes it two
// file descriptors: the configuration, and a pipe for the server's address.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "configs/published_weights.h"
#include "configs/yaml/strict_yaml.h"
#include "coordinator/service/certificates.h"
#include "coordinator/service/listen_address.h"
#include "coordinator/service/metrics.h"
#include "coordinator/service/server.h"
#include "deploy/cli/annex.h"
#include "deploy/cli/args/run_name.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/process/dataset_query.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/process_limits.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/cli/run_request.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/planner/model_layers.h"

namespace headroom::cli {
namespace {

// Judges the anchors if headroom-worker and the data set are on this machine;
// where only a coordinator runs, both may be missing.
void try_to_settle_anchors(configs::RunConfig& config) {
  if (!wants_anchors(config)) return;
  try {
    ask_data(config, {.anchors = true});
  } catch (const Error& error) {
    if (config.hyp.anchors > 0 || interrupts::count() > 0) throw;
    config.anchors_reason =
        std::string(
            "the model's anchors are kept, for nobody could judge them "
            "here: ") +
        error.what();
  }
  log::info("anchors: " + config.anchors_reason);
}

// Counts the training images, which must be on this machine.
void settle_optimizer(configs::RunConfig& config) {
  if (counts_for_optimizer(config)) {
    try {
      ask_data(config, {.label_counts = true});
    } catch (const Error& error) {
      if (interrupts::count() > 0) throw;
      throw Error("config",
                  std::string("--optimizer auto depends on the number of "
                              "training images, and they cannot be counted "
                              "here: ") +
                      error.what(),
                  "name an optimizer, for example --optimizer SGD");
    }
  }
  std::vector<std::string> notes;
  take_optimizer(config, notes);
  for (const std::string& note : notes) log::info(note);
}

configs::RunConfig configuration(const CommandLine& line) {
  if (line.has("--config-fd")) {
    return configs::parse_run_config(
        yaml::read_config_file(
            cat("/proc/self/fd/", line.count_of("--config-fd")), "config"),
        "the supervisor's run.yaml");
  }
  configs::RunConfig config =
      configs::run_config_from_flags("train", line.run_flags);
  if (config.cfg.empty() && config.weights.empty()) config.cfg = "yolov5s";
  config.processes = line.count_of("--expected-workers");
  forget_found_anchors(config);
  if (config.device.empty()) config.device = kAutomaticDevice;
  configs::take_augment_program(config, line.value_of("--augment-program"));
  configs::check_run_config(config);
  configs::check_run_sources(config);
  std::vector<std::string> notes;
  config.weights = configs::find_weights(config.weights, notes);
  config.teacher = configs::find_weights(config.teacher, notes);
  for (const std::string& note : notes) log::info(note);
  planner::describe_teacher(config);
  if (take_value_range(config)) ask_data(config, {.value_range = true});
  try_to_settle_anchors(config);
  settle_optimizer(config);
  configs::begin_hours(config, std::chrono::system_clock::now());
  return config;
}

void tell_address(const CommandLine& line, const std::string& address) {
  if (!line.has("--report-fd")) {
    log::info("coordinator: listening on " + address);
    return;
  }
  const int fd = line.count_of("--report-fd");
  const std::string text = address + "\n";
  if (write(fd, text.data(), text.size()) !=
      static_cast<ssize_t>(text.size())) {
    throw Error("coordinator", "nobody reads the address that was asked for",
                "start it without --report-fd", ExitCode::kResource);
  }
  close(fd);
}

int init_certificates(const CommandLine& line) {
  std::vector<std::string> names;
  std::istringstream list(line.value_of("--cert-names"));
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  const std::string folder = line.value_of("--init-certs");
  coordinator::make_certificates(folder, names);
  std::printf(
      "%s: copy ca.pem, client.pem, client.key and token to every node, "
      "server.pem and server.key to the coordinator's; keep ca.key apart\n",
      folder.c_str());
  return 0;
}

// Every agent and worker needs a connection; an unknown client also keeps a
// connection for a while.
void allow_many_connections() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  require_descriptors();
}

// Returns nullptr without --metrics.
std::unique_ptr<coordinator::MetricsEndpoint> serve_metrics(
    const CommandLine& line, const coordinator::Server& server) {
  const std::string address = line.value_of("--metrics");
  if (address.empty()) return nullptr;
  if (!wire::is_loopback(host_of(address, "--metrics")) &&
      !line.has("--insecure-network")) {
    throw Error("metrics",
                "--metrics " + address +
                    " would say beyond this machine what the run does, in "
                    "plain text",
                "listen on 127.0.0.1, or pass --insecure-network in a network "
                "you trust");
  }
  return std::make_unique<coordinator::MetricsEndpoint>(
      address,
      coordinator::MetricsSource{[&server] { return server.status(); },
                                 [&server] { return server.refused_calls(); }});
}

// The last line, and a folder without anything in it is not left.
void say_place(const coordinator::RunStatus& status) {
  const std::string elsewhere =
      tell_elsewhere(status.run_directory, status.folder);
  if (!elsewhere.empty()) {
    log::info("coordinator: " + elsewhere);
  } else if (status.folder.is_known()) {
    log::info("coordinator: results in " + status.run_directory);
  }
  // Unlike std::filesystem::remove() this leaves a link to a folder.
  ::rmdir(status.run_directory.c_str());
}

}  // namespace

int coordinator_command(const CommandLine& line) {
  if (line.has("--init-certs")) return init_certificates(line);
  allow_many_connections();
  for (const std::string& note : line.notes) log::info(note);
  coordinator::ServerOptions options;
  options.expected_workers = line.count_of("--expected-workers");
  const bool is_supervised = line.has("--report-fd");
  if (resumes(line)) {
    const RunRequest request = resumed_request(
        line, line.has("--expected-workers") ? options.expected_workers : 0);
    for (const std::string& note : request.notes) log::info(note);
    options.config = request.config;
    options.expected_workers = request.expected_workers();
    options.saved_plan = request.saved_plan;
    options.run_directory = request.run_directory;
  } else {
    options.config = configuration(line);
    options.saved_plan = line.has("--saved-plan");
    options.run_directory = line.has("--run-directory")
                                ? line.value_of("--run-directory")
                                : new_run_directory(options.config).string();
  }
  options.listen = line.value_of("--listen");
  host_of(options.listen, "--listen");
  options.insecure_network = line.has("--insecure-network");
  options.debug_reflection = line.has("--debug-reflection");
  options.log = line.value_of("--log");
  options.security = wire::read_channel_security(line.value_of("--certs"),
                                                 line.value_of("--token-file"),
                                                 wire::ChannelSide::kServer);
  options.shares_port = is_supervised;
  options.is_successor = line.has("--successor");

  const interrupts::Watch watch;
  const std::unique_ptr<coordinator::Server> server =
      coordinator::Server::start(options);
  const std::unique_ptr<coordinator::MetricsEndpoint> metrics =
      serve_metrics(line, *server);
  const std::shared_ptr<void> page = serve_page(
      line, options.run_directory,
      [&server]() -> std::optional<coordinator::RunStatus> {
        return server->status();
      },
      [](const std::string& text) { log::info(text); });
  if (!is_supervised) {
    // The next run of this machine gets another name even if the results of
    // this one are on another machine.
    std::error_code ignored;
    std::filesystem::create_directories(server->status().run_directory,
                                        ignored);
  }
  tell_address(line, server->address());
  int answered = 0;
  while (!server->wait_until_over(std::chrono::milliseconds(100))) {
    const int count = interrupts::count();
    if (count > 1) break;
    if (count > answered) {
      answered = count;
      server->drain("the coordinator was asked to stop");
    }
  }
  server->stop();
  const coordinator::RunStatus status = server->status();
  if (!is_supervised && !status.reason.empty()) {
    log::info("coordinator: " + to_string(status.state) + ": " + status.reason);
  }
  if (!is_supervised) say_place(status);
  return status.over() ? status.exit_code
                       : static_cast<int>(ExitCode::kInterrupted);
}

}  // namespace headroom::cli
