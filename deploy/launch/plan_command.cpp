// headroom plan: the plan that train would use, and why. Starts nothing.
#include <cstdio>

#include "deploy/launch/commands.h"
#include "deploy/launch/host.h"
#include "deploy/launch/plan_report.h"
#include "deploy/launch/run_request.h"
#include "parallel/base/check.h"

namespace headroom {

int plan_command(const CommandLine& line) {
  const std::string show = line.value_of("--show", "schedule");
  if (show != "schedule") {
    throw Error("command line", "--show " + show + ": there is no such drawing",
                "use --show schedule");
  }
  const RunRequest request =
      make_run_request(line, std::nullopt, usable_cores());
  for (const std::vector<std::string>& notes : {line.notes, request.notes}) {
    for (const std::string& note : notes) {
      std::fprintf(stderr, "%s\n", note.c_str());
    }
  }
  const PlanReport report = make_plan_report(
      request.config, request.expected_workers(), line.has("--show"));
  std::fputs(line.has("--json") ? (plan_report_json(report) + "\n").c_str()
                                : plan_report_text(report).c_str(),
             stdout);
  return 0;
}

}  // namespace headroom
