// What `headroom plan` says first: whether the run fits, the command that
// trains it, and what fills the memory. The tables of plan_report.h follow on
// request (--details).
#pragma once

#include <optional>
#include <string>

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/plan/plan_machines.h"
#include "deploy/cli/plan/plan_report.h"

namespace headroom::cli {

// The command that trains what `plan` was asked about, as typed: without the
// flags that only plan knows, with the processes of the machines. Over several
// machines it is mpirun's.
std::string train_command(const CommandLine& plan,
                          const std::optional<PlanMachines>& machines,
                          bool knows_data);

// Lines for people. `command` is train_command's.
// Whether it fits, with both numbers.
std::string plan_verdict(const PlanReport& report,
                         const std::optional<PlanMachines>& machines);

std::string plan_answer_text(const PlanReport& report,
                             const std::optional<PlanMachines>& machines,
                             const std::string& command);

}  // namespace headroom::cli
