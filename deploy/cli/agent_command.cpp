// headroom agent: one node's agent, for a coordinator that already runs.
#include "deploy/cli/commands.h"
#include "deploy/cli/process/core_binding.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/spot_watch.h"
#include "parallel/base/check.h"
#include "parallel/base/terminal.h"
#include "proto/refusal_channel.h"

namespace headroom::cli {

AgentOptions agent_options(const CommandLine& line,
                           const std::string& coordinator, int processes,
                           const std::optional<LauncherJob>& job,
                           Terminal& terminal) {
  const LauncherPlace place = job ? job->place : LauncherPlace();
  AgentOptions options;
  options.coordinator = coordinator;
  options.security = take_identity(line, coordinator);
  options.interface = line.value_of("--interface");
  if (line.command != "val") {
    options.augment_program = line.value_of("--augment-program");
  }
  options.processes = processes;
  options.launcher_rank = place.rank;
  options.first_local_rank = place.local_rank * processes;
  options.local_workers = place.local_size * processes;
  options.worker_program = find_worker_program();
  options.print = [&](const std::string& text) { terminal.print(text); };
  options.interrupts = interrupts::count;
  options.exit_code_of_leaver = job ? job->exit_code_of_leaver() : 0;
  return options;
}

int agent_command(const CommandLine& line) {
  if (!line.has("--coordinator")) {
    throw Error("agent", "no coordinator is named",
                "give --coordinator HOST:PORT");
  }
  Terminal terminal;
  const auto job = read_launcher(process_environment());
  if (is_bound_by_default(process_environment())) use_all_cores();
  const std::string coordinator = line.value_of("--coordinator");
  host_of(coordinator, "--coordinator");
  AgentOptions options = agent_options(
      line, coordinator, line.count_of("--processes"), job, terminal);
  options.has_coordinator = line.has("--supervised");
  const auto spot = watch_spot(line.value_of("--spot"), options.print);
  if (spot) options.notice = [&spot] { return spot->notice(); };
  const RunExit end = run_agent(options);
  const bool tell = end.decided_here || !line.has("--supervised");
  if (tell && !end.reason.empty()) {
    wire::tell_parent({end.reason});
    terminal.print(end.reason);
  }
  if (!end.place.empty()) terminal.print(end.place);
  return end.exit_code;
}

}  // namespace headroom::cli
