#include "deploy/cli/process/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/log.h"

namespace headroom::cli {
namespace {

constexpr const char* kMoreProcesses =
    "allow more processes, threads and open files (ulimit -u, pids.max, "
    "ulimit -n), or free memory";

struct Pipe {
  int reading = -1;
  int writing = -1;
  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
      throw Error("launch", std::string("no pipe: ") + strerror(errno),
                  "raise the limit of open files (ulimit -n)",
                  ExitCode::kResource);
    }
    reading = fds[0];
    writing = fds[1];
  }
};

// Runs in the child, between fork and exec: async-signal-safe calls only.
// Returns only if the program could not be started.
void become(char** command, char** environment, int input_fd, int output_fd,
            const std::vector<int>& passed_fds, const std::vector<int>& cores,
            int death_signal, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, death_signal);
  if (getppid() != parent) _exit(1);  // the parent ended before prctl()
  setpgid(0, 0);
  if (!cores.empty()) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    for (int core : cores) CPU_SET(core, &allowed);
    // If the kernel refuses, the child is only slower.
    sched_setaffinity(0, sizeof allowed, &allowed);
  }
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    std::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(input_fd >= 0 ? input_fd : open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(output_fd, STDOUT_FILENO);  // only the supervisor prints results
  dup2(output_fd, STDERR_FILENO);
  for (int fd : passed_fds) fcntl(fd, F_SETFD, 0);
  execve(command[0], command, environment);
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    std::error_code error;
    return std::filesystem::is_directory(name, error) ||
                   !std::filesystem::exists(name, error)
               ? ""
               : name;
  }
  std::istringstream folders(process_environment()["PATH"]);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = folder + "/" + name;
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error) &&
        access(path.c_str(), X_OK) == 0) {
      return path;
    }
  }
  return "";
}

struct ChildProcess::State {
  ChildOptions options;
  pid_t pid = -1;
  std::optional<int> exit_code;
  mutable std::mutex mutex;  // guards last_lines
  std::deque<ChildLine> last_lines;
  std::unique_ptr<LineReader> reader;
  int refusal_fd = -1;  // the reading end; -1 if the child sends no refusals
  std::optional<wire::Refusal> refusal;

  ~State() {
    if (refusal_fd >= 0) close(refusal_fd);
  }

  void keep(const ChildLine& line) {
    {
      std::lock_guard lock(mutex);
      last_lines.push_back(line);
      if (last_lines.size() > kLastWordsLines) last_lines.pop_front();
    }
    if (options.on_line) options.on_line(line);
  }

  void ended(int wait_status) {
    exit_code = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                         : WEXITSTATUS(wait_status);
    reader.reset();  // reads the rest of the output
    if (refusal_fd >= 0) refusal = wire::read_refusal(refusal_fd);
  }
};

ChildProcess::ChildProcess(ChildOptions options)
    : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  std::vector<std::string> command = state_->options.command;
  Environment environment =
      state_->options.environment.value_or(process_environment());
  if (!state_->options.environment) environment[log::kRecordsVariable] = "1";
  for (const auto& [name, value] : state_->options.extra_environment) {
    environment[name] = value;
  }
  std::optional<Pipe> refusal;
  if (state_->options.may_refuse) {
    refusal.emplace();
    state_->refusal_fd = refusal->reading;
    state_->options.passed_fds.push_back(refusal->writing);
    environment[wire::kRefusalVariable] = std::to_string(refusal->writing);
  }
  std::vector<std::string> variables = assignments(environment);
  const std::vector<char*> command_pointers = pointers_to(command);
  const std::vector<char*> environment_pointers = pointers_to(variables);
  const pid_t parent = getpid();
  Pipe output, failure;

  state_->pid = fork();
  if (state_->pid == 0) {
    become(const_cast<char**>(command_pointers.data()),
           const_cast<char**>(environment_pointers.data()),
           state_->options.input, output.writing, state_->options.passed_fds,
           state_->options.cores, state_->options.death_signal, parent);
    const int error = errno;
    [[maybe_unused]] ssize_t told =
        write(failure.writing, &error, sizeof error);
    _exit(127);
  }
  const int fork_error = errno;
  close(output.writing);
  close(failure.writing);
  if (refusal) close(refusal->writing);
  int error = 0;
  if (state_->pid < 0) {
    error = fork_error;
  } else {
    setpgid(state_->pid, state_->pid);  // the child calls it too, perhaps first
    // A successful exec closes the pipe without writing to it.
    ssize_t count;
    do {
      count = read(failure.reading, &error, sizeof error);
    } while (count < 0 && errno == EINTR);
    if (count > 0) waitpid(state_->pid, nullptr, 0);
  }
  close(failure.reading);
  if (error != 0) {
    close(output.reading);
    state_->exit_code = 127;
    const bool is_refused = state_->pid < 0;  // fork() failed
    throw Error("launch",
                state_->options.name + " cannot start: " + command[0] + ": " +
                    strerror(error),
                is_refused ? kMoreProcesses
                           : "check that the file is there and may be run",
                is_refused ? ExitCode::kResource : ExitCode::kRequest);
  }
  try {
    state_->reader = std::make_unique<LineReader>(
        output.reading, [state = state_.get()](std::string line) {
          state->keep(child_line(std::move(line)));
        });
  } catch (const std::exception& refused) {
    ::kill(-state_->pid, SIGKILL);
    waitpid(state_->pid, nullptr, 0);
    close(output.reading);
    throw Error("launch",
                "nothing can read the output of " + state_->options.name +
                    ": " + refused.what(),
                kMoreProcesses, ExitCode::kResource);
  }
}

ChildProcess::~ChildProcess() {
  if (!exit_code()) {
    send(SIGKILL);
    int status = 0;
    while (waitpid(state_->pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
}

const std::string& ChildProcess::name() const { return state_->options.name; }
int ChildProcess::pid() const { return state_->pid; }

std::optional<int> ChildProcess::exit_code() {
  if (!state_->exit_code) {
    int status = 0;
    if (waitpid(state_->pid, &status, WNOHANG) == state_->pid) {
      state_->ended(status);
    }
  }
  return state_->exit_code;
}

std::optional<int> ChildProcess::wait(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!exit_code() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return state_->exit_code;
}

void ChildProcess::send(int signal) {
  if (!exit_code()) ::kill(-state_->pid, signal);
}

int ChildProcess::terminate(std::chrono::milliseconds grace) {
  send(SIGTERM);
  if (!wait(grace)) send(SIGKILL);
  while (!wait(std::chrono::seconds(1))) {
  }
  return *state_->exit_code;
}

const std::optional<wire::Refusal>& ChildProcess::refusal() const {
  return state_->refusal;
}

std::string ChildProcess::last_words() const {
  std::lock_guard lock(state_->mutex);
  std::string words;
  for (const ChildLine& line : state_->last_lines) words += line.text + "\n";
  return words;
}

std::string ChildProcess::telling_line() const {
  std::lock_guard lock(state_->mutex);
  return cli::telling_line(state_->last_lines);
}

namespace {

// Returns 0 if the process is gone.
pid_t parent_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  // The name is in brackets and may contain any character.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string process_state;
  pid_t parent = 0;
  fields >> process_state >> parent;
  return parent;
}

// glibc 2.36 declares pidfd_open() without C linkage, so it does not link.
int open_process(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

}  // namespace

Offspring::Offspring(const ChildProcess& child) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error);
       !error && entry != std::filesystem::directory_iterator();
       entry.increment(error)) {
    const std::string pid = entry->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos ||
        parent_of(pid) != child.pid()) {
      continue;
    }
    const int fd = open_process(std::stoi(pid));
    if (fd < 0) continue;
    // The process may have ended, and its number may name another process now.
    if (parent_of(pid) == child.pid()) {
      pidfds_.push_back(fd);
    } else {
      close(fd);
    }
  }
}

Offspring::~Offspring() {
  for (const int fd : pidfds_) close(fd);
}

bool Offspring::wait(std::chrono::milliseconds timeout) const {
  const auto end = std::chrono::steady_clock::now() + timeout;
  return std::ranges::all_of(pidfds_, [&](int fd) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd process{fd, POLLIN, 0};
    return poll(&process, 1, std::max(0, static_cast<int>(left.count()))) > 0;
  });
}

void Offspring::kill() const {
  for (const int fd : pidfds_)
    syscall(SYS_pidfd_send_signal, fd, SIGKILL, nullptr, 0);
}

}  // namespace headroom::cli
