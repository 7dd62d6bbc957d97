// Starts headroom page and headroom report as a user does.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "deploy/cli/args/command_line.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/run_page.h"
#include "deploy/page/report.h"
#include "parallel/base/check.h"
#include "tests/deploy/page/run_directory_fixture.h"

namespace headroom::page {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kProgram = HEADROOM_BUILD_DIR "/bin/headroom";

struct Ended {
  int exit_code = -1;
  std::string text;  // standard output and standard error
};

Ended run(const std::string& arguments) {
  Ended ended;
  FILE* const pipe = popen((kProgram + " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  while (size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    ended.text.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

TEST(ReportCommand, ItWritesTheReportIntoTheRunDirectory) {
  const RunDirectory folder;
  const Ended ended = run("report " + folder.path().string());
  EXPECT_EQ(ended.exit_code, 0) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("report: "));
  EXPECT_TRUE(is_report(folder.path() / "report.html"));
  EXPECT_EQ(run("report " + folder.path().string()).exit_code, 0);
}

TEST(ReportCommand, AFileThatIsNoReportIsNotReplaced) {
  const RunDirectory folder;
  folder.write("mine.html", "mine");
  const std::string command = "report " + folder.path().string() +
                              " --output " +
                              (folder.path() / "mine.html").string();
  const Ended refused = run(command);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.text, HasSubstr("--exist-ok"));
  EXPECT_EQ(run(command + " --exist-ok").exit_code, 0);
}

TEST(ReportCommand, WithoutARunItNamesTheMissingArgument) {
  const headroom::testing::TemporaryFolder folder;
  EXPECT_EQ(run("report").exit_code, 2);
  const Ended ended = run("report " + folder.path().string());
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.text, HasSubstr("no run.yaml"));
  EXPECT_EQ(run("page").exit_code, 2);
  EXPECT_EQ(run("page a b").exit_code, 2);
}

TEST(PlanReportFile, ItShowsThePlanAndReplacesAReportAlone) {
  const headroom::testing::TemporaryFolder folder;
  const std::string file = (folder.path() / "plan.html").string();
  const std::string command =
      "plan --cfg yolov5n --img 64 --batch 8 --layout pipeline=2 "
      "--memory-limit 1GiB --report " +
      file;
  const Ended ended = run(command);
  EXPECT_EQ(ended.exit_code, 0) << ended.text;
  ASSERT_TRUE(is_report(file));
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (const char* part :
       {"Plan of yolov5n", "\"planned\":{\"verdict\"", "headroom train --data",
        "Schedule, one column per time slot", "times this plan's step time",
        "1 of 8"}) {
    EXPECT_THAT(text, HasSubstr(part)) << part;
  }
  EXPECT_EQ(run(command).exit_code, 0);
  folder.write("plan.html", "mine");
  const Ended refused = run(command);
  EXPECT_EQ(refused.exit_code, 2) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("is no report"));
  EXPECT_EQ(run(command + " --sweep img=64").exit_code, 2);
  EXPECT_EQ(run("plan --cfg yolov5n --report ''").exit_code, 2);
  // A refused command writes nothing.
  const std::string written = (folder.path() / "asked").string();
  EXPECT_EQ(run(command + " --write " + written).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(written));
}

TEST(PlanReportFile, OfManyProcessesHasTheirLayoutsToo) {
  const headroom::testing::TemporaryFolder folder;
  const std::string file = (folder.path() / "plan.html").string();
  const Ended ended =
      run("plan --cfg yolov5n --img 64 --batch 256 --processes 32 --json "
          "--report " +
          file);
  EXPECT_EQ(ended.exit_code, 0) << ended.text;
  EXPECT_THAT(ended.text, Not(HasSubstr("\"schedule\"")))
      << "nobody asked for it";
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(text, HasSubstr("\"layout\":\"data=16,pipeline=2\""));
}

TEST(PageCommand, ItPrintsItsAddressAndEndsWellWithAnInterrupt) {
  const RunDirectory folder;
  int out[2];
  ASSERT_EQ(pipe2(out, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    execl(kProgram.c_str(), "headroom", "page", folder.parent().c_str(),
          nullptr);
    _exit(127);
  }
  ::close(out[1]);
  std::string line;
  char c = 0;
  while (read(out[0], &c, 1) == 1 && c != '\n') line += c;
  ::close(out[0]);
  EXPECT_TRUE(line.starts_with("page:  http://127.0.0.1:")) << line;
  EXPECT_THAT(line, HasSubstr("/?token="));
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(PageCommand, AHostBeyondLoopbackIsRefusedWithoutCertificates) {
  const RunDirectory folder;
  const Ended ended =
      run("page " + folder.path().string() + " --listen 0.0.0.0:0");
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.text, HasSubstr("--certs"));
}

class PageOfTraining : public ::testing::Test {
 protected:
  std::shared_ptr<PageServer> serve(const std::vector<std::string>& words) {
    std::vector<std::string> all = {"train", "--synthetic-input"};
    all.insert(all.end(), words.begin(), words.end());
    return std::static_pointer_cast<PageServer>(cli::serve_page(
        cli::parse_command_line(all), folder_.path().string(),
        [this] { return status_.get(); },
        [this](const std::string& line) { said_ += line + "\n"; }));
  }

  const RunDirectory folder_;
  cli::StatusBox status_;
  std::string said_;
};

TEST_F(PageOfTraining, ItIsServedOnLoopbackByDefaultAndPrintsItsAddress) {
  const auto server = serve({});
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(said_, "page:  " + server->address() + "\n");
}

TEST_F(PageOfTraining, OffIsOff) {
  EXPECT_EQ(serve({"--page", "off"}), nullptr);
  EXPECT_EQ(said_, "");
  EXPECT_THROW(
      cli::check_page_flags(cli::parse_command_line(
          {"train", "--synthetic-input", "--page", "off", "--page-controls"})),
      Error);
}

// Pressing the button twice is one request, so it does not stop the run at
// once.
TEST_F(PageOfTraining, ItsButtonIsOneRequest) {
  const interrupts::Watch watch;
  const int before = interrupts::count();
  const auto server = serve({"--page-controls"});
  ASSERT_NE(server, nullptr);
  interrupts::request();
  interrupts::request();
  EXPECT_EQ(interrupts::count(), std::max(before, 1));
}

TEST_F(PageOfTraining, AnAddressThatWasGivenAndIsTakenIsRefused) {
  const auto server = serve({});
  EXPECT_THROW(serve({"--page", "127.0.0.1:" + std::to_string(server->port())}),
               Error);
  EXPECT_THROW(serve({"--page", "0.0.0.0:0"}), Error);
  EXPECT_THROW(serve({"--page", "nowhere"}), Error);
}

TEST_F(PageOfTraining, TheReportIsLeftOnceStepsAreThere) {
  coordinator::RunStatus status;
  const auto say = [this](const std::string& line) { said_ += line; };
  cli::leave_report(folder_.parent().string(), status, say);
  EXPECT_FALSE(std::filesystem::exists(folder_.parent() / "report.html"));
  cli::leave_report(folder_.path().string(), status, say);
  EXPECT_TRUE(is_report(folder_.path() / "report.html"));
  EXPECT_EQ(said_, "");
  folder_.write("report.html", "mine");
  folder_.write(".older-run", "");
  cli::leave_report(folder_.path().string(), status, say);
  EXPECT_EQ(said_, "");
  std::filesystem::remove(folder_.path() / ".older-run");
  cli::leave_report(folder_.path().string(), status, say);
  EXPECT_THAT(said_, HasSubstr("no report"));
}

}  // namespace
}  // namespace headroom::page
