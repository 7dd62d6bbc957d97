#include "deploy/cli/annex.h"
#include "deploy/cli/commands.h"
#include "parallel/base/check.h"

namespace headroom::cli {
namespace {

Error absent(const std::string& what) {
  return Error("build", what + " is not part of this build, which has no annex",
               "configure with -DHEADROOM_ANNEX=ON");
}

class NoNotifications final : public Notifications {
 public:
  void begin(const RunRequest& /*request*/) override {}
  void take(const std::vector<wire::EventRecord>& /*events*/) override {}
  void take(const coordinator::RunStatus& /*status*/) override {}
  void finish(int /*exit_code*/, const std::string& /*reason*/) override {}
};

}  // namespace

void check_page_flags(const CommandLine& line) {
  // `val` and `detect` have no page, and no such flag to ask for its value.
  const bool wants_page =
      line.has("--page") && line.value_of("--page") != "off";
  if (wants_page || line.has("--page-controls")) throw absent("the page");
}

std::shared_ptr<void> serve_page(
    const CommandLine& line, const std::string& /*run_directory*/,
    std::function<std::optional<coordinator::RunStatus>()> /*status*/,
    const Say& /*say*/) {
  check_page_flags(line);
  return nullptr;
}

void leave_report(const std::string& /*run_directory*/,
                  const coordinator::RunStatus& /*status*/,
                  const Say& /*say*/) {}

void check_plan_page(const std::string& /*file*/) {
  throw absent("plan --report");
}

void write_plan_page(const std::string& /*file*/, const PlanPage& /*page*/) {
  throw absent("plan --report");
}

std::unique_ptr<Notifications> Notifications::requested(
    const CommandLine& line, Terminal& /*terminal*/) {
  if (line.command == "train") {
    for (const char* flag :
         {"--mlflow", "--mlflow-experiment", "--webhook", "--on-event"}) {
      if (line.has(flag)) throw absent(flag);
    }
  }
  return std::make_unique<NoNotifications>();
}

int notify_command(const std::vector<std::string>& /*words*/) {
  throw absent("headroom notify");
}

int page_command(const CommandLine& /*line*/) { throw absent("headroom page"); }

int fetch_command(const CommandLine& /*line*/) {
  throw absent("headroom fetch");
}

int report_command(const CommandLine& /*line*/) {
  throw absent("headroom report");
}

}  // namespace headroom::cli
