// headroom train, headroom val. Without a launcher this process supervises one
// machine; under a launcher it is one of several agents, and rank 0 also runs
// the coordinator.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

#include "deploy/cli/annex.h"
#include "deploy/cli/args/run_name.h"
#include "deploy/cli/commands.h"
#include "deploy/cli/launched_again.h"
#include "deploy/cli/process/core_binding.h"
#include "deploy/cli/process/dataset_query.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/launcher_end.h"
#include "deploy/cli/process/launcher_environment.h"
#include "deploy/cli/process/process_limits.h"
#include "deploy/cli/process/rendezvous.h"
#include "deploy/cli/process/run_folder.h"
#include "deploy/cli/process/socket_folder.h"
#include "deploy/cli/process/spot_watch.h"
#include "deploy/cli/run_request.h"
#include "deploy/cli/show/run_result.h"
#include "deploy/cli/supervisor.h"
#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/machine/machine_limits.h"
#include "parallel/network/network_interfaces.h"
#include "proto/channel_security.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRegistrationTimeout = std::chrono::seconds(30);
constexpr auto kRendezvousTimeout = std::chrono::seconds(60);
// The time limit if rank 0 reads the whole data set first, or if its machine
// may start minutes later than this machine.
constexpr auto kLongTimeout = std::chrono::seconds(600);
// How long the name of rank 0's machine may fail to resolve: a pod's name has
// an address only when the pod runs.
constexpr auto kNameTimeout = std::chrono::seconds(60);

// A validation ignores spot notices: it can be repeated at any time.
std::string spot_choice(const CommandLine& line) {
  if (line.command != "train") return "off";
  const std::string choice = line.value_of("--spot");
  require_spot_choice(choice);
  return choice;
}

// nullopt outside a launcher.
using OptionalJob = std::optional<LauncherJob>;

int run_as_agent(const CommandLine& line, const std::string& coordinator,
                 int processes, const OptionalJob& job,
                 std::chrono::seconds patience, Terminal& terminal) {
  AgentOptions options =
      agent_options(line, coordinator, processes, job, terminal);
  options.registration_timeout = patience;
  if (job && job->place.size > 1) options.launcher_size = job->place.size;
  const auto spot = watch_spot(spot_choice(line), options.print);
  if (spot) options.notice = [&spot] { return spot->notice(); };
  const RunExit end = run_agent(options);
  if (end.decided_here) terminal.print(end.reason);
  if (!end.place.empty()) terminal.print(end.place);
  if (job && end.exit_code != 0) leave_failure(*job, end.reason);
  return end.exit_code;
}

// Gives the run's token to this process and the processes that it starts.
void use_token(const std::string& token) {
  if (!token.empty()) setenv(wire::kTokenVariable, token.c_str(), 1);
}

std::string wait_for_address(const RendezvousFolder& folder,
                             const LauncherPlace& place,
                             std::chrono::seconds patience) {
  // Polls, because the system sends no notification when another machine
  // creates a file in a shared folder.
  constexpr auto kPause = std::chrono::milliseconds(50);
  const Clock::time_point end = Clock::now() + patience;
  do {
    if (const auto meeting = read_address(folder, place.job_id)) {
      use_token(meeting->token);
      return meeting->address;
    }
  } while (Clock::now() < end && !interrupts::wait(kPause));
  throw Error("rendezvous",
              cat("rank 0 left no address in ", folder.path.string(),
                  " within ", patience.count(), " s"),
              "see what rank 0 says; the folder must be shared by all hosts",
              ExitCode::kResource);
}

// The address of this machine for other machines.
std::string own_address(const CommandLine& line) {
  if (!line.has("--interface")) return host_address();
  return interface_named(line.value_of("--interface"), network_interfaces())
      .address;
}

// Refuses a --coordinator address that other processes cannot reach. If the run
// `spans` machines, also refuses an address that only this machine can reach.
void require_reachable(const CommandLine& line, bool spans = false) {
  const std::string address = line.value_of("--coordinator");
  const std::string host = host_of(address, "--coordinator");
  const std::string loopback = spans ? loopback_address_of(host) : "";
  if (!loopback.empty()) {
    throw Error("network",
                "--coordinator " + address + ": " + host + " is " + loopback +
                    " on " + this_host_name() +
                    ", which no other machine can reach",
                "name an address of rank 0's machine (here: " +
                    interfaces_text(network_interfaces()) +
                    "), or take the name out of the lines of 127.* in "
                    "/etc/hosts");
  }
  if (!address.ends_with(":0")) return;
  throw Error("network",
              "--coordinator " + address + ": nobody can find port 0",
              "name the port, for example 10.0.0.5:29500");
}

// Whether the run's processes connect in a private folder: all of them are on
// this machine, and no credentials were given for other clients. Processes of a
// --rendezvous may each have their own temporary folder.
bool meets_in_a_folder(const CommandLine& line, const OptionalJob& job) {
  const bool has_one_machine = !job || job->place.one_host();
  return has_one_machine && !line.has("--coordinator") &&
         !line.has("--rendezvous") && !line.has("--certs") &&
         !line.has("--token-file");
}

// The address at which this run's coordinator listens on a network.
std::string listen_address(const CommandLine& line, const OptionalJob& job) {
  if (line.has("--coordinator")) return line.value_of("--coordinator");
  const bool spans = job && !job->place.one_host();
  return spans ? own_address(line) + ":0" : "127.0.0.1:0";
}

// Draws a token if the coordinator listens on loopback, to which every user of
// the machine can connect. Returns "" if a token is given, the address is not a
// loopback address, or --coordinator gives the address: the processes that
// connect there have only the same flags.
std::string own_token(const CommandLine& line, const std::string& listen) {
  const bool is_known = !wire::channel_security().token.empty();
  if (is_known || line.has("--coordinator") || wire::is_unix_socket(listen) ||
      !wire::is_loopback(host_of(listen, "--listen"))) {
    return "";
  }
  return wire::draw_token();
}

int report(const RunRequest& request, const SupervisedRun& run, bool json,
           Terminal& terminal) {
  terminal.clear_live();
  if (json) {
    std::puts(
        result_json(run.end, request.run_directory, run.status.result_json)
            .c_str());
  } else if (run.end.exit_code == 0) {
    std::fputs(result_text(request.config, run.status).c_str(), stdout);
  }
  // If standard output is a pipe, its reader gets the text now.
  std::fflush(stdout);
  if (run.end.exit_code != 0) {
    terminal.print(run.end.reason);
    const std::string hint = resume_hint(run.end, request.run_directory);
    if (!hint.empty()) terminal.print(hint);
  }
  const std::string elsewhere =
      tell_elsewhere(request.run_directory, run.status.folder);
  if (!elsewhere.empty()) terminal.print(elsewhere);
  return run.end.exit_code;
}

// Tests the limits of this process once on each machine, for all workers there.
void require_resources(const configs::RunConfig& config, int workers_per_agent,
                       const LauncherPlace& place) {
  require_descriptors();
  require_address_space();
  if (place.local_rank > 0) return;
  const MachineLimits limits = read_machine_limits();
  const int64_t workers =
      int64_t{workers_per_agent} * std::max(1, place.local_size);
  require_threads(
      {.workers = workers,
       .threads = config.threads > 0
                      ? config.threads
                      : std::max<int64_t>(1, limits.cores / workers),
       .loader_threads = config.synthetic_input ? 0 : config.loader_threads,
       .cores = limits.cores,
       .cores_of_mask = limits.cores_of_mask});
}

int run_with_coordinator(const CommandLine& line, RunRequest request,
                         const OptionalJob& job,
                         const std::optional<RendezvousFolder>& folder,
                         Terminal& terminal) {
  const std::unique_ptr<Notifications> notifications =
      Notifications::requested(line, terminal);
  check_page_flags(line);
  SupervisorOptions options;
  std::optional<SocketFolder> sockets;
  if (meets_in_a_folder(line, job)) sockets.emplace();
  options.listen =
      sockets ? sockets->control_address() : listen_address(line, job);
  options.security = take_identity(line, options.listen);
  options.interface = line.value_of("--interface");
  const std::string token = own_token(line, options.listen);
  use_token(token);
  if (!token.empty()) take_identity(line, options.listen);
  options.metrics = line.value_of("--metrics");
  options.spot = spot_choice(line);
  options.headroom_program = std::filesystem::read_symlink("/proc/self/exe");
  options.interrupts = interrupts::count;
  std::filesystem::path token_file;
  const bool trains = request.config.command == "train";
  options.on_address = [&](const std::string& address) {
    if (job && trains) record_job(*job, request.run_directory);
    if (folder) publish_address(*folder, job->place.job_id, {address, token});
    std::string command = "headroom status --coordinator " + address;
    for (const std::string& word : options.security.flags()) {
      command += " " + word;
    }
    if (!token.empty()) {
      command += " --token-file " + shell_word(token_file.string());
    }
    terminal.print("processes and plan: " + command);
  };
  find_worker_program();  // throws before any process is started
  require_resources(request.config, request.workers_per_agent,
                    job ? job->place : LauncherPlace());
  for (const std::string& note : line.notes) terminal.print(note);
  for (const std::string& note : request.notes) terminal.print(note);
  const interrupts::Watch watch;
  const bool may_exist =
      request.config.exist_ok || !request.config.resume.empty();
  const RunFolder run_folder(
      may_exist ? std::filesystem::path(request.run_directory)
                : project_folder(request.config) / request.config.name,
      may_exist);
  request.run_directory = run_folder.path().string();
  options.log = run_folder.log_file().string();
  token_file = run_folder.token_file();
  if (!token.empty()) run_folder.write_token(token);
  terminal.print(headline(request));
  terminal.print(model_line(request));
  if (wants_anchors(request.config)) {
    ask_data(request.config, {.anchors = true});
  }
  if (has_judged_anchors(request.config)) {
    terminal.print("anchors: " + request.config.anchors_reason);
  }
  const auto newest = std::make_shared<StatusBox>();
  const auto say = [&](const std::string& text) { terminal.print(text); };
  std::shared_ptr<void> page;
  if (trains) {
    page = serve_page(
        line, request.run_directory, [newest] { return newest->get(); }, say);
  }
  options.on_status = [&](const coordinator::RunStatus& status) {
    newest->set(status);
    notifications->take(status);
  };
  options.on_events = [&](const std::vector<wire::EventRecord>& events) {
    notifications->take(events);
  };
  options.request = request;
  notifications->begin(request);
  const SupervisedRun run = supervise(options, terminal);
  newest->set(run.status);
  if (folder) withdraw_address(*folder, job->place.job_id);
  // Prints the result before the notifications and the report, which may take a
  // while.
  const int exit_code = report(request, run, line.has("--json"), terminal);
  if (job && exit_code != 0) leave_failure(*job, run.end.reason);
  notifications->finish(run.end.exit_code, run.end.reason);
  if (trains && !request.config.noplots) {
    leave_report(request.run_directory, run.status, say);
  }
  return exit_code;
}

// mpirun binds each process of a small job, and its workers, to one core. This
// binding is removed unless the user asked for it.
void correct_binding(const LauncherPlace& place, Terminal& terminal) {
  if (!is_bound_by_default(process_environment())) return;
  const auto bound = static_cast<int>(allowed_cores().size());
  const int all = use_all_cores();
  if (place.rank != 0 || all == bound) return;
  terminal.print(cat(place.launcher, " bound its processes to ", bound, " of ",
                     all,
                     " cores by default: undone (give --bind-to to keep it)"));
}

// Only warns: a binding that the user asked for is kept.
void notice_binding(int workers, Terminal& terminal) {
  const auto bound = static_cast<int>(allowed_cores().size());
  if (bound >= workers || bound >= sysconf(_SC_NPROCESSORS_ONLN)) return;
  terminal.print(
      cat("warning: the launcher bound this process to ",
          counted(bound, "core"), ", which its ", workers,
          " workers share: start it with mpirun --bind-to none or srun "
          "--cpu-bind=none"));
}

// Returns `line` with the launcher's address of rank 0's machine as
// --coordinator, unless a flag gives one. "--coordinator :PORT" keeps the
// machine and changes the port.
CommandLine with_coordinator(const CommandLine& line, const LauncherJob& job) {
  const std::string given = line.value_of("--coordinator");
  const bool is_port = given.starts_with(':');
  CommandLine own = line;
  if (job.place.size < 2 || job.coordinator.empty()) {
    if (is_port) own.command_flags["--coordinator"] = "127.0.0.1" + given;
    if (is_port && job.place.size > 1) {
      throw Error("network",
                  "--coordinator " + given + " names no machine, and " +
                      job.place.launcher + " does not name rank 0's either",
                  "write HOST:PORT, for example 10.0.0.5:29500");
    }
    return own;
  }
  if ((line.has("--coordinator") && !is_port) || line.has("--rendezvous")) {
    return own;
  }
  const size_t colon = job.coordinator.rfind(':');
  const std::string host = job.coordinator.substr(0, colon);
  own.command_flags["--coordinator"] =
      (host.empty() ? own_address(line) : host) +
      (is_port ? given : job.coordinator.substr(colon));
  return own;
}

// Prints where the coordinator is. Refuses an unprotected address with a
// message that names the launcher's variable.
void check_named_coordinator(const CommandLine& line, const LauncherJob& job,
                             Terminal& terminal) {
  const std::string address = line.value_of("--coordinator");
  const std::string where = address + " (" + job.coordinator_from + ")";
  try {
    take_identity(line, address);
  } catch (const Error& error) {
    throw Error(error.tag(),
                job.place.launcher + " names rank 0's machine, " + where +
                    ": " + error.text(),
                error.remedy(), error.exit_code());
  }
  // The processes share only their flags, so no process can create a token.
  if (wire::channel_security().token.empty() &&
      !line.has("--insecure-network")) {
    throw Error("network",
                job.place.launcher + " names rank 0's machine, " + where +
                    ", where every user of this machine could join the run",
                "give --token-file FILE, or allow it with --insecure-network");
  }
  terminal.print(cat(job.place.launcher, ": agent ", job.place.rank, " of ",
                     job.place.size,
                     job.place.rank == 0 ? ", the coordinator listens at "
                                         : ", waiting for the coordinator at ",
                     where));
  const std::string host = host_of(address, "--coordinator");
  const Clock::time_point end = Clock::now() + kNameTimeout;
  while (!resolves(host)) {
    if (interrupts::wait(std::chrono::seconds(1))) {
      throw Error("launch", "interrupted while waiting for " + host,
                  "start it again", ExitCode::kInterrupted);
    }
    if (Clock::now() < end) continue;
    throw Error(
        "network",
        cat(host, ", which ", job.coordinator_from,
            " names, has no address after ", kNameTimeout.count(), " s"),
        "see whether rank 0's machine runs and has that name, or give "
        "--coordinator HOST:PORT",
        ExitCode::kResource);
  }
}

// The request of an agent other than rank 0's. To resume a run, its machine
// needs the run's folder only for the number of workers.
RunRequest request_of_agent(const CommandLine& line,
                            const LauncherPlace& place) {
  RunRequest request;
  request.config = configs::run_config_from_flags(line.command, line.run_flags);
  const std::string& resume = request.config.resume;
  request.workers_per_agent = static_cast<int>(request.config.processes);
  request.num_agents = place.size;
  if (!resume.empty()) {
    try {
      run_directory_to_resume(project_folder(request.config),
                              resume == "latest" ? "" : resume);
    } catch (const Error& error) {
      if (request.workers_per_agent > 0) return request;
      throw Error(error.tag(), error.text(),
                  "give --processes N, the workers of each machine, if the "
                  "run's folder is on rank 0's machine alone; else " +
                      error.remedy());
    }
  }
  return make_run_request(line, place, usable_cores(), ask_data,
                          /*must_fit=*/true, {}, read_machine_limits());
}

int run_in_launcher(const CommandLine& typed, const LauncherJob& job,
                    Terminal& terminal) {
  interrupts::watch_parent();
  const LauncherPlace& place = job.place;
  if (place.rank == 0 && !job.around.empty()) {
    terminal.print(job.around_text());
  }
  CommandLine line = with_coordinator(typed, job);
  const bool is_named = place.size > 1 && line.value_of("--coordinator") !=
                                              typed.value_of("--coordinator");
  if (is_named) check_named_coordinator(line, job, terminal);
  if (line.has("--coordinator")) require_reachable(line, !place.one_host());
  correct_binding(place, terminal);
  if (place.rank == 0) {
    const std::string note = go_on_with_earlier_run(job, line);
    if (!note.empty()) terminal.print(note);
  }
  const RunRequest request =
      place.rank > 0
          ? request_of_agent(line, place)
          : make_run_request(line, place, usable_cores(), ask_data,
                             /*must_fit=*/true, {}, read_machine_limits());
  notice_binding(request.workers_per_agent, terminal);
  std::optional<RendezvousFolder> folder;
  std::unique_ptr<FileDescriptor> hold;
  if (place.size > 1 && !line.has("--coordinator")) {
    folder =
        rendezvous_folder(place, line.value_of("--rendezvous"),
                          std::filesystem::temp_directory_path(), geteuid());
    hold = prepare_folder(*folder, geteuid());
  }
  if (place.rank == 0) {
    return run_with_coordinator(line, request, job, folder, terminal);
  }
  require_resources(request.config, request.workers_per_agent, place);
  configs::RunConfig asked = request.config;
  const bool waits = wants_anchors(asked) || take_value_range(asked);
  const std::string address =
      folder ? wait_for_address(*folder, place,
                                waits ? kLongTimeout : kRendezvousTimeout)
             : line.value_of("--coordinator");
  return run_as_agent(line, address, request.workers_per_agent, job,
                      waits || is_named ? kLongTimeout : kRegistrationTimeout,
                      terminal);
}

int join_run(const CommandLine& line, const OptionalJob& job,
             Terminal& terminal) {
  require_reachable(line);
  take_identity(line, line.value_of("--coordinator"));
  const configs::RunConfig config =
      configs::run_config_from_flags(line.command, line.run_flags);
  const int workers = std::max(1, static_cast<int>(config.processes));
  // The coordinator decides the number of threads. Until it answers, use the
  // number of the flags or the default.
  require_resources(config, workers, job ? job->place : LauncherPlace());
  terminal.print("joining the run of the coordinator at " +
                 line.value_of("--coordinator") +
                 ": of the flags, --processes and --augment-program count");
  return run_as_agent(line, line.value_of("--coordinator"), workers, job,
                      kRegistrationTimeout, terminal);
}

}  // namespace

int train_command(const CommandLine& line) {
  Terminal terminal;
  const OptionalJob job = read_launcher(process_environment());
  if (!job || !job->has_size) {
    if (line.has("--coordinator")) return join_run(line, job, terminal);
    const RunRequest request =
        make_run_request(line, std::nullopt, usable_cores(), ask_data,
                         /*must_fit=*/true, {}, read_machine_limits());
    return run_with_coordinator(line, request, std::nullopt, std::nullopt,
                                terminal);
  }
  try {
    return run_in_launcher(line, *job, terminal);
  } catch (const Error& error) {
    // Other processes may find the same mistake. This process reports it only
    // if rank 0 does not.
    if (!wait_for_rank_zero(job->place, std::chrono::seconds(2))) throw;
    return static_cast<int>(error.exit_code());
  }
}

}  // namespace headroom::cli
