// What `headroom plan` says first: whether the run fits, the command that
// trains it, and what fills the memory. The tables of plan_report.h follow on
// request (--details).
#pragma once

#include <cstddef>
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

// Whether it fits, with both numbers.
std::string plan_verdict(const PlanReport& report,
                         const std::optional<PlanMachines>& machines);

// Lines for people of at most so many columns, 0 for any number, but for the
// command, which is to be copied: train_command's.
std::string plan_answer_text(const PlanReport& report,
                             const std::optional<PlanMachines>& machines,
                             const std::string& command, size_t columns = 0);

// "label        text", the text in lines of at most so many columns.
std::string labelled(const std::string& label, const std::string& text,
                     size_t columns);

}  // namespace headroom::cli
