// Launchers: one row for each program or service that may have started this
// process, with the names of the variables in which it says where the process
// is. launcher_environment.h reads them.
//
// A new launcher is a new row, a documented environment in
// tests/deploy/cli/process/launcher_environment_test.cpp, two agents in
// tests/integration/launchers_test.cpp, and a line in
// deploy/guide/many_cards.md.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace headroom::cli {

using Environment = std::map<std::string, std::string>;

// Which processes the launcher starts, and so what one of them becomes.
enum class Started {
  kAgents,   // any number on a machine: each becomes an agent
  kNodes,    // one on a machine: it becomes the agent
  kWorkers,  // one a device: local rank 0 becomes the agent, the others wait
};

// How the launcher writes the list of its machines.
enum class HostList {
  kNone,
  kLines,        // a name or address on each line
  kJson,         // ["algo-1", "algo-2"]
  kCommas,       // a,b; `hosts` may hold one '*' for the name of the task
  kCounts,       // "a 4 b 4": a name and its number of slots, again and again
  kFileOfSlots,  // a file: a name on each line, once for each slot
};

// Whose exit code decides what becomes of the job. It settles how an agent ends
// whose workers have left a run that goes on.
enum class WhoseExit {
  kEveryProcess,  // a failure of any is the job's: it ends with 0
  kRankZero,      // the others' do not count: it ends with 0
  kPod,           // each pod's own: 130, so that another takes its place; a pod
                  // that ends with 0 is taken for complete
};

// What a failure is written to, besides standard error.
enum class ErrorFile {
  kNone,
  kTorchelastic,  // JSON, to the file that `error_file` names
  kText,          // the line itself, to the file `error_file`
};

// Names of variables. "A|B": the first of them that is set. "": none says it.
struct Launcher {
  std::string_view name{};  // people read it
  // All of these are set, `absent` is not, and `is_meant` (if any) agrees.
  std::array<std::string_view, 4> recognised_by{};
  std::string_view absent{};
  bool (*is_meant)(const Environment&) = nullptr;
  // Other launchers set these variables too, and say more: it gives way to one
  // further out that names the same rank and a number of ranks.
  bool gives_way = false;
  Started started = Started::kNodes;
  // Of the process (kAgents) or of the machine.
  std::string_view rank{};
  std::string_view size{};
  // The machine that is to be rank 0, whatever its own number.
  std::string_view main_node{};
  // The process among those of its machine. Without `local_size` each machine
  // has the same number, size / nodes. With `node`, the machine's rank,
  // `local_size` is Slurm's list for all machines: "2(x3),1".
  std::string_view local_rank{};
  std::string_view local_size{};
  std::string_view nodes{};
  std::string_view node{};
  // How many devices an agent has: its number of workers, unless a flag says
  // it. A value that is no number, as "auto", says nothing.
  std::string_view devices{};
  // They are cards: a machine that shows none is broken, and no run on CPUs.
  bool promises_cards = false;
  // All machines in the order of their ranks. Where no `rank` is named it is
  // the place of `own_host` (or of this machine's name) in the list.
  std::string_view hosts{};
  HostList host_list = HostList::kNone;
  std::string_view own_host{};
  // Rank 0's machine and a port there; "" for the list's first machine and for
  // kCoordinatorPort. The launcher's own store may listen at the port, so the
  // coordinator does `port_step` above it.
  std::string_view address{};
  std::string_view port{};
  int port_step = 0;
  // How often the launcher has started the same processes again.
  std::string_view restarts{};
  std::string_view run_id{};  // the job's name, the same in all those starts
  // Together they name the job among all jobs, also over time: for launchers
  // that name no machine, whose processes meet in a folder.
  std::string_view job{};
  std::string_view job_again{};
  WhoseExit exit = WhoseExit::kEveryProcess;
  ErrorFile error_form = ErrorFile::kNone;
  std::string_view error_file{};
};

// Where the coordinator listens if the launcher names a machine and no port.
inline constexpr int kCoordinatorPort = 29500;

// Innermost first: where several have started this process, one within the
// other, the first row counts.
std::span<const Launcher> launchers();

}  // namespace headroom::cli
