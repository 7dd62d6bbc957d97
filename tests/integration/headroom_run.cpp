#include "tests/integration/headroom_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void redirect(const fs::path& path, int descriptor) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(file, descriptor);
  ::close(file);
}

bool is_flag(const std::string& word) { return word.starts_with("--"); }

// Returns the command in which each flag that occurs twice has only its last
// values, if it is a command of `headroom train`, coordinator, val or plan.
std::vector<std::string> each_flag_once(std::vector<std::string> command) {
  const auto verb = std::ranges::find_if(command, [](const auto& word) {
    return word == "train" || word == "coordinator" || word == "val" ||
           word == "plan";
  });
  if (verb == command.end()) return command;
  std::vector<std::vector<std::string>> uses;
  for (auto word = verb + 1; word != command.end(); ++word) {
    if (uses.empty() || is_flag(*word)) {
      std::erase_if(uses, [&](const auto& use) {
        return use.front() == *word && *word != "--set";
      });
      uses.emplace_back();
    }
    uses.back().push_back(*word);
  }
  command.erase(verb + 1, command.end());
  for (const auto& use : uses) {
    command.insert(command.end(), use.begin(), use.end());
  }
  return command;
}

}  // namespace

Program::Program(std::vector<std::string> command, fs::path folder)
    : folder_(std::move(folder)), started_(now()) {
  command = each_flag_once(std::move(command));
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    if (::chdir(folder_.c_str()) != 0) ::_exit(126);
    redirect(folder_ / "stdout.txt", STDOUT_FILENO);
    redirect(folder_ / "stderr.txt", STDERR_FILENO);
    redirect("/dev/null", STDIN_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

void Program::signal(int number) const { ::kill(pid_, number); }

ProgramResult Program::join() {
  ProgramResult result;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  result.exit_code =
      WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.out = text_of(folder_ / "stdout.txt");
  result.err = text_of(folder_ / "stderr.txt");
  result.seconds = now() - started_;
  return result;
}

ProgramResult run_program(const std::vector<std::string>& command,
                          const fs::path& folder) {
  return Program(command, folder).join();
}

std::vector<std::string> joined(std::vector<std::string> words,
                                const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> split_words(const std::string& line) {
  std::istringstream text(line);
  return {std::istream_iterator<std::string>(text), {}};
}

std::string program(const std::string& name) {
  return std::string(HEADROOM_BUILD_DIR) + "/bin/" + name;
}

std::vector<std::string> headroom_command(const std::string& line) {
  return joined({program("headroom")}, split_words(line));
}

namespace {

// A test leaves a few hundred MB of checkpoints, and there are many tests. So
// the files of a passed test are removed, and those of a failed test are kept.
class PassedFolders : public ::testing::EmptyTestEventListener {
 public:
  static void note(const fs::path& folder) {
    static PassedFolders* const listener = [] {
      auto* made = new PassedFolders;  // GoogleTest owns it
      ::testing::UnitTest::GetInstance()->listeners().Append(made);
      return made;
    }();
    listener->folder_ = folder;
  }

 private:
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (test.result()->Passed() && !folder_.empty()) {
      std::error_code ignored;
      fs::remove_all(folder_, ignored);
    }
    folder_.clear();
  }

  fs::path folder_;
};

}  // namespace

fs::path fresh_folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test->test_suite_name()) + "." + test->name();
  std::replace(name.begin(), name.end(), '/', '.');
  const fs::path folder =
      fs::path(HEADROOM_BUILD_DIR) / "tests" / "runs" / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  PassedFolders::note(folder);
  return folder;
}

std::string shapes_data() {
  const fs::path folder =
      fs::path(HEADROOM_BUILD_DIR) / "tests" / "runs" / "shapes";
  if (!fs::exists(folder / "data.yaml")) {
    fs::create_directories(folder.parent_path());
    const ProgramResult made =
        run_program({program("headroom-shapes"), folder.string(), "--train",
                     "37", "--val", "9", "--size", "128"},
                    folder.parent_path());
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  return (folder / "data.yaml").string();
}

std::string outlined_shapes_data() {
  const fs::path from = fs::path(shapes_data()).parent_path();
  const fs::path folder = from.parent_path() / "outlined-shapes";
  if (fs::exists(folder / "data.yaml")) return folder / "data.yaml";
  fs::create_directories(folder);
  fs::copy(from / "images", folder / "images", fs::copy_options::recursive);
  for (const char* split : {"train", "val"}) {
    fs::create_directories(folder / "labels" / split);
    for (const auto& file : fs::directory_iterator(from / "labels" / split)) {
      std::istringstream boxes(text_of(file.path()));
      std::ofstream outlines(folder / "labels" / split /
                             file.path().filename());
      int label = 0;
      double x = 0, y = 0, w = 0, h = 0;
      while (boxes >> label >> x >> y >> w >> h) {
        outlines << label << " " << x - w / 2 << " " << y << " " << x << " "
                 << y - h / 2 << " " << x + w / 2 << " " << y << " " << x << " "
                 << y + h / 2 << "\n";
      }
    }
  }
  fs::copy_file(from / "data.yaml", folder / "data.yaml");
  return folder / "data.yaml";
}

std::vector<std::string> train_shapes(const std::string& batch,
                                      const std::vector<std::string>& more) {
  return joined(headroom_command("train --data " + shapes_data() +
                                 " --cfg yolov5n --img 96 --batch " + batch +
                                 " --device cpu --threads 1 --workers 1"),
                more);
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Json read_json(const fs::path& file) {
  return Json::parse(text_of(file), nullptr, /*allow_exceptions=*/false);
}

std::vector<Json> read_lines(const fs::path& path) {
  std::vector<Json> lines;
  std::istringstream text(text_of(path));
  std::string line;
  while (std::getline(text, line)) lines.push_back(Json::parse(line));
  return lines;
}

std::vector<pid_t> descendants(pid_t pid, const std::string& text) {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = text_of(entry.path() / "stat");
    const size_t behind_name = stat.rfind(") ");
    if (behind_name == std::string::npos) continue;
    std::istringstream fields(stat.substr(behind_name + 2));
    char state = 0;
    pid_t parent = 0;
    fields >> state >> parent;
    children.emplace(parent, static_cast<pid_t>(std::stol(name)));
  }
  std::vector<pid_t> found;
  std::vector<pid_t> open = {pid};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto child = begin; child != end; ++child) {
      open.push_back(child->second);
      const std::string line =
          text_of("/proc/" + std::to_string(child->second) + "/cmdline");
      if (line.find(text) != std::string::npos) found.push_back(child->second);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<int> listening_ports(pid_t pid, const std::string& text) {
  std::set<std::string> sockets;
  std::error_code error;
  for (const pid_t process : descendants(pid, text)) {
    const fs::path files = "/proc/" + std::to_string(process) + "/fd";
    for (const auto& entry : fs::directory_iterator(files, error)) {
      const std::string target = fs::read_symlink(entry.path(), error);
      if (target.starts_with("socket:[")) {
        sockets.insert(target.substr(8, target.size() - 9));
      }
    }
  }
  std::vector<int> ports;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::vector<std::string> fields;
      for (std::string word; words >> word;) fields.push_back(word);
      constexpr const char* kListens = "0A";
      if (fields.at(3) == kListens && sockets.contains(fields.at(9))) {
        const std::string& name = fields[1];
        ports.push_back(
            std::stoi(name.substr(name.find(':') + 1), nullptr, 16));
      }
    }
  }
  return ports;
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ntohs(address.sin_port);
}

bool wait_for_lines(const fs::path& file, size_t count, double seconds) {
  const double deadline = now() + seconds;
  while (now() < deadline) {
    const std::string text = text_of(file);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    if (static_cast<size_t>(lines) >= count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace headroom::testing
