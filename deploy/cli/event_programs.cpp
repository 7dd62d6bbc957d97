#include "deploy/cli/event_programs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "configs/options.h"
#include "deploy/cli/process/file_descriptor.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/line_log.h"
#include "deploy/records/bounded_lines.h"
#include "deploy/records/line_follower.h"
#include "deploy/records/run_lines.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kProgressInterval = std::chrono::seconds(5);
constexpr auto kTimeAtEnd = std::chrono::seconds(10);
// How long a program may take to end when it is asked to.
constexpr milliseconds kLastWords(500);
constexpr size_t kMostLines = 4096;
constexpr size_t kMostBytes = 256 << 10;
// A program's output is read at 400 KB/s at most.
constexpr size_t kOutputPart = 4096;
constexpr milliseconds kOutputPause(10);

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string name_of(const fs::path& run_directory) {
  const fs::path name = run_directory.lexically_normal();
  return (name.has_filename() ? name : name.parent_path()).filename();
}

std::optional<fs::file_time_type> written(const fs::path& file) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(file, error);
  if (error) return std::nullopt;
  return time;
}

// A program and the lines that it has not read yet.
class Follower {
 public:
  using Say = std::function<void(const std::string&)>;

  Follower(const EventProgram& program, LineLog& log, Say say)
      : program_(program), log_(log), say_(std::move(say)) {
    int ends[2];
    HEADROOM_CHECK(pipe2(ends, O_CLOEXEC) == 0, "out of file descriptors");
    const FileDescriptor reading(ends[0]);
    input_.emplace(ends[1]);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    ChildOptions options;
    options.name = program.name;
    options.command = program.command;
    options.environment = program.environment;
    options.passed_fds = program.passed_fds;
    options.input = reading.get();
    options.on_line = [this](const ChildLine& line) { take_output(line); };
    child_ = std::make_unique<ChildProcess>(std::move(options));
  }

  // Sets the first line. Lines that were added earlier are sent after it.
  void begin(const std::string& line) {
    writing_ = line + "\n";
    has_begun_ = true;
  }
  void add(const std::string& line) {
    if (input_) waiting_.add(line + "\n");
  }
  // Sends a line of progress only to a program that has read all other lines.
  void add_progress(const std::string& line) {
    if (input_ && has_read_all()) writing_ = line + "\n";
  }
  // `line` contains the number of dropped lines, so adding it must not drop
  // another line.
  void end(const std::string& line) {
    is_ending_ = true;
    if (input_) waiting_.add_beyond_limits(line + "\n");
  }

  bool has_read_all() const { return writing_.empty() && waiting_.empty(); }
  int64_t dropped() const { return waiting_.dropped(); }
  bool is_running() { return !child_->exit_code(); }

  // Writes as much as fits into the pipe, and closes it if the program has
  // ended.
  void write_waiting() {
    while (has_begun_ && input_ && !has_read_all()) {
      if (writing_.empty()) writing_ = waiting_.take_oldest();
      const ssize_t count =
          ::write(input_->get(), writing_.data(), writing_.size());
      if (count > 0) writing_.erase(0, static_cast<size_t>(count));
      if (count < 0 && errno == EAGAIN) break;
      if (count < 0 && errno != EINTR) close_input();
    }
    if (is_running()) return;
    close_input();
    if (!std::exchange(is_end_said_, true)) say_end();
  }

  void close_input_when_read() {
    if (has_read_all()) close_input();
  }

  void ask_to_end() {
    if (!is_running()) return;
    if (!program_.speaks_to_user) {
      say_("warning: " + program_.name +
           " still runs after the run's end: it is ended");
    }
    is_end_said_ = true;
    child_->send(SIGTERM);
  }
  void kill() {
    if (is_running()) child_->terminate(milliseconds(0));
  }
  void say_dropped() {
    if (dropped() == 0) return;
    say_("warning: " + program_.name +
         " reads too slowly: " + counted(dropped(), "event") + " were dropped");
  }

 private:
  void close_input() { input_.reset(); }

  void say_end() {
    const int exit_code = *child_->exit_code();
    if (exit_code == 0) return;
    const std::string line = short_line(child_->telling_line(), 200);
    say_(cat("warning: ", program_.name, " ended with exit code ", exit_code,
             line.empty() ? "" : " (" + line + ")",
             is_ending_ ? "" : ": training goes on without it"));
  }

  void take_output(const ChildLine& line) {
    if (program_.speaks_to_user) {
      say_(line.text);
      return;
    }
    log_.add(program_.name, line);
    constexpr size_t kLineCost = 32;
    output_ += line.text.size() + kLineCost;
    if (output_ < kOutputPart || is_ending_) return;
    output_ = 0;
    std::this_thread::sleep_for(kOutputPause);
  }

  const EventProgram program_;
  LineLog& log_;
  const Say say_;
  std::optional<FileDescriptor> input_;
  std::string writing_;  // the rest of the line that is being written
  records::BoundedLines waiting_{kMostLines, kMostBytes};
  bool has_begun_ = false;
  bool is_end_said_ = false;
  // Used only by the thread that reads the program's output.
  size_t output_ = 0;
  std::atomic<bool> is_ending_ = false;
  std::unique_ptr<ChildProcess> child_;
};

}  // namespace

struct EventPrograms::State {
  State(const std::vector<EventProgram>& programs,
        const fs::path& run_directory, bool resumed, const Follower::Say& say)
      : directory(run_directory),
        is_resumed(resumed),
        older_run(resumed ? std::nullopt
                          : written(directory / run_files::kRun)),
        events_from(records::end_of_lines(directory / run_files::kEvents)),
        log(directory, "on-event") {
    for (const EventProgram& program : programs) {
      followers.push_back(std::make_unique<Follower>(program, log, say));
    }
  }

  // Returns the configuration that the run has written; null until it is
  // written. A new run leaves an older run's files in the folder until it has
  // committed a step.
  Json config() const {
    std::error_code error;
    const fs::path file = directory / run_files::kRun;
    const auto time = written(file);
    if (!time || time == older_run ||
        fs::exists(directory / run_files::kOlderRun, error)) {
      return nullptr;
    }
    try {
      const configs::RunConfig config =
          configs::parse_run_config(records::file_text(file), file.string());
      Json json;
      for (const configs::Option& option : configs::run_options()) {
        json[option.key] = configs::value_text(config, option);
      }
      return json;
    } catch (const Error&) {
      return nullptr;  // the file is not complete yet
    }
  }

  // Sends the first line once the run's files exist, or at the run's end.
  void start(bool is_over) {
    const Json settings = is_started ? nullptr : config();
    if (is_started || (settings.is_null() && !is_over)) return;
    is_started = true;
    const std::string line = dumped({{"event", "run_start"},
                                     {"run", name_of(directory)},
                                     {"folder", directory.string()},
                                     {"resumed", is_resumed},
                                     {"events_from", events_from},
                                     {"config", settings}});
    for (const auto& follower : followers) follower->begin(line);
  }

  void pass_progress(bool is_over) {
    const Clock::time_point now = Clock::now();
    if (!is_started || progress.num_steps <= 0 ||
        (now - last_progress < kProgressInterval && !is_over)) {
      return;
    }
    Json metrics = Json::object();
    for (const NamedLoss& loss : progress.losses) {
      metrics[loss.name + "_loss"] = loss.value;
    }
    metrics["images_per_second"] = progress.images_per_second;
    std::string line = dumped({{"event", "progress"},
                               {"step", progress.step},
                               {"num_steps", progress.num_steps},
                               {"epoch", progress.epoch},
                               {"num_epochs", progress.num_epochs},
                               {"metrics", metrics}});
    if (line == newest_progress) return;
    last_progress = now;
    newest_progress = std::move(line);
    for (const auto& follower : followers) {
      follower->add_progress(newest_progress);
    }
  }

  void pass_on(bool is_over) {
    if (followers.empty()) return;
    start(is_over);
    pass_progress(is_over);
    for (const auto& follower : followers) follower->write_waiting();
  }

  void wait_for_programs(const std::function<bool()>& may_wait) {
    const auto is_running = [](const auto& one) { return one->is_running(); };
    while (std::ranges::any_of(followers, is_running) && may_wait()) {
      for (const auto& follower : followers) {
        follower->write_waiting();
        follower->close_input_when_read();
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    for (const auto& follower : followers) follower->write_waiting();
  }

  const fs::path directory;
  const bool is_resumed;
  // The time of a run.yaml that an older run has left in the folder.
  const std::optional<fs::file_time_type> older_run;
  const uint64_t events_from;
  LineLog log;
  std::vector<std::unique_ptr<Follower>> followers;
  bool is_started = false;
  wire::RunProgress progress;
  Clock::time_point last_progress{};
  std::string newest_progress;
};

EventPrograms::EventPrograms(const std::vector<EventProgram>& programs,
                             const fs::path& directory, bool is_resumed,
                             std::function<void(const std::string&)> say)
    : state_(std::make_unique<State>(programs, directory, is_resumed,
                                     std::move(say))) {}

EventPrograms::~EventPrograms() = default;

void EventPrograms::take(const std::vector<wire::EventRecord>& events) {
  for (const wire::EventRecord& event : events) {
    const std::string line = wire::to_json_line(event);
    for (const auto& follower : state_->followers) follower->add(line);
  }
  state_->pass_on(/*is_over=*/false);
}

void EventPrograms::take(const coordinator::RunStatus& status) {
  state_->progress = status.progress;
  state_->pass_on(/*is_over=*/false);
}

void EventPrograms::finish(int exit_code, const std::string& reason) {
  const auto& followers = state_->followers;
  state_->pass_on(/*is_over=*/true);
  for (const auto& follower : followers) {
    follower->end(dumped({{"event", "run_end"},
                          {"exit_code", exit_code},
                          {"reason", reason},
                          {"dropped", follower->dropped()},
                          {"seconds", kTimeAtEnd.count()}}));
  }
  const Clock::time_point deadline = Clock::now() + kTimeAtEnd;
  const int interrupts = interrupts::count();
  state_->wait_for_programs([&] {
    return Clock::now() < deadline && interrupts::count() == interrupts;
  });
  for (const auto& follower : followers) follower->ask_to_end();
  const Clock::time_point last = Clock::now() + kLastWords;
  state_->wait_for_programs([&] { return Clock::now() < last; });
  for (const auto& follower : followers) {
    follower->kill();
    follower->say_dropped();
  }
}

}  // namespace headroom::cli
