// Launchers: one row for each program or service that may have started this
// process, with the names of the variables that give the place of the process
// in the job. launcher_environment.h reads them.
//
// A new launcher needs a new row, a documented environment in
// tests/deploy/cli/process/launcher_environment_test.cpp, two agents in
// tests/integration/launchers_test.cpp, and a line in
// deploy/guide/many_cards.md.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "parallel/base/environment.h"

namespace headroom::cli {

// Which processes the launcher starts, and therefore what each of them becomes.
enum class Started {
  kAgents,  // any number of processes per machine: each becomes an agent
  kNodes,   // one process per machine: it becomes the agent
  // One process per device: local rank 0 becomes the agent, the others wait.
  kWorkers,
};

// The form of the launcher's list of machines.
enum class HostList {
  kNone,
  kLines,   // a name or address on each line
  kJson,    // ["algo-1", "algo-2"]
  kCommas,  // separated by commas; a '*' in `hosts` stands for the task's name
  kCounts,  // "a 4 b 4": a name and its number of slots, repeated
  kFileOfSlots,  // the name of a file: a name per line, repeated for each slot
};

// The processes whose exit codes decide the result of the job. An agent whose
// workers have left a run that continues ends with the code that keeps the job
// alive.
enum class WhoseExit {
  kEveryProcess,  // any failure fails the job: the agent ends with 0
  kRankZero,      // only rank 0 counts: the agent ends with 0
  kPod,           // each pod on its own: the agent ends with 130, so that the
                  // pod is replaced; a pod that ends with 0 counts as complete
};

// Where the reason of a failure is written, besides standard error.
enum class ErrorFile {
  kNone,
  kTorchelastic,  // JSON, into the file that the variable `error_file` names
  kText,          // plain text, into the file `error_file`
};

// The fields are names of variables. "A|B": the first one that is set. "": the
// launcher has no such variable.
struct Launcher {
  std::string_view name{};  // the launcher's name in messages
  // The launcher is recognised if all these variables are set, `absent` is not
  // set, and `is_meant` is nullptr or returns true.
  std::array<std::string_view, 4> recognised_by{};
  std::string_view absent{};
  bool (*is_meant)(const Environment&) = nullptr;
  // Whether other launchers set these variables too. Then an outer launcher
  // that gives the same rank and a number of ranks replaces this row.
  bool gives_way = false;
  Started started = Started::kNodes;
  // Variables with the rank and the number of processes if kAgents, otherwise
  // of machines.
  std::string_view rank{};
  std::string_view size{};
  // The index of the machine that becomes rank 0.
  std::string_view main_node{};
  // The rank of the process on its machine. Without `local_size` every machine
  // has the same number of processes, size / nodes. With `node`, the machine's
  // rank, `local_size` is Slurm's list for all machines: "2(x3),1".
  std::string_view local_rank{};
  std::string_view local_size{};
  std::string_view nodes{};
  std::string_view node{};
  // The number of devices of an agent, which is its number of workers unless a
  // flag gives it. A value that is not a number, such as "auto", is ignored.
  std::string_view devices{};
  // Whether the devices are cards. A machine without cards is then refused
  // instead of training on the CPU.
  bool promises_cards = false;
  // All machines in the order of their ranks. If the row has no `rank`, the
  // rank is the position of `own_host` (or of this machine's name) in the list.
  std::string_view hosts{};
  HostList host_list = HostList::kNone;
  std::string_view own_host{};
  // Rank 0's machine and a port on it. "" means the first machine of the list,
  // and kCoordinatorPort. The launcher's own store may use the port, so the
  // coordinator listens `port_step` above it.
  std::string_view address{};
  std::string_view port{};
  int port_step = 0;
  // The number of times that the launcher has restarted these processes.
  std::string_view restarts{};
  std::string_view run_id{};  // the job's name, equal in all its restarts
  // These two values identify the job among all jobs, also earlier ones. Only
  // launchers that name no machine need them: their processes meet in a folder.
  std::string_view job{};
  std::string_view job_again{};
  WhoseExit exit = WhoseExit::kEveryProcess;
  ErrorFile error_form = ErrorFile::kNone;
  std::string_view error_file{};
};

// The coordinator's port if the launcher names a machine but no port.
inline constexpr int kCoordinatorPort = 29500;

// The table of launchers, innermost first: if launchers are nested, the first
// matching row counts.
std::span<const Launcher> launchers();

}  // namespace headroom::cli
