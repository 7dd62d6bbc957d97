// The first lines of `headroom plan`: whether the run fits, the command that
// trains it, and what fills the memory. --details adds plan_report.h's tables.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/plan/plan_machines.h"
#include "deploy/cli/plan/plan_report.h"

namespace headroom::cli {

// The command that trains the planned run: the plan command as typed, without
// the flags that only plan takes, and with the number of processes of the
// machines. For several machines it is an mpirun command.
std::string train_command(const CommandLine& plan,
                          const std::optional<PlanMachines>& machines,
                          bool knows_data);

// Whether the plan fits, with the bytes that the fullest process needs in its
// largest phase (also on the plan's page), and the bytes that are available. If
// the cards cannot be used, returns the reason instead.
std::string plan_verdict(const PlanReport& report,
                         const std::optional<PlanMachines>& machines);

// The whole answer. Lines are at most `columns` wide (0: any width), except the
// `command` (from train_command), which stays one line for copying.
std::string plan_answer_text(const PlanReport& report,
                             const std::optional<PlanMachines>& machines,
                             const std::string& command, size_t columns = 0);

// "label        text", with the text wrapped to at most `columns`.
std::string labelled(const std::string& label, const std::string& text,
                     size_t columns);

}  // namespace headroom::cli
