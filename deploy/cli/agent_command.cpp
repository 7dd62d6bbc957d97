// headroom agent: one node's agent, for a coordinator that already runs.
#include "deploy/cli/process/agent.h"

#include "deploy/cli/commands.h"
#include "deploy/cli/process/core_binding.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/launcher_environment.h"
#include "deploy/cli/process/refusal_channel.h"
#include "deploy/cli/process/spot_watch.h"
#include "parallel/base/check.h"
#include "parallel/base/terminal.h"

namespace headroom::cli {

int agent_command(const CommandLine& line) {
  if (!line.has("--coordinator")) {
    throw Error("agent", "no coordinator is named",
                "give --coordinator HOST:PORT");
  }
  Terminal terminal;
  const auto job = read_launcher(process_environment());
  const LauncherPlace place = job ? job->place : LauncherPlace();
  if (is_bound_by_default(process_environment())) use_all_cores();
  AgentOptions options;
  options.coordinator = line.value_of("--coordinator");
  host_of(options.coordinator, "--coordinator");
  options.security = take_identity(line, options.coordinator);
  options.interface = line.value_of("--interface");
  options.processes = line.count_of("--processes");
  options.launcher_rank = place.rank;
  options.first_local_rank = place.local_rank * options.processes;
  options.local_workers = place.local_size * options.processes;
  options.worker_program = find_worker_program();
  options.print = [&](const std::string& text) { terminal.print(text); };
  options.interrupts = interrupts::count;
  options.has_coordinator = line.has("--supervised");
  options.exit_code_of_leaver = job ? job->exit_code_of_leaver() : 0;
  const auto spot = watch_spot(line.value_of("--spot"), options.print);
  if (spot) options.notice = [&spot] { return spot->notice(); };
  const RunExit end = run_agent(options);
  const bool tell = end.decided_here || !line.has("--supervised");
  if (tell && !end.reason.empty()) {
    tell_parent({end.reason});
    terminal.print(end.reason);
  }
  return end.exit_code;
}

}  // namespace headroom::cli
