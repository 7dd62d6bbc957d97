#include "tests/integration/two_nodes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;

// Creates a folder for a program's output.
fs::path scratch(const fs::path& folder, const std::string& name) {
  fs::create_directories(folder / name);
  return folder / name;
}

std::vector<std::string> inside(pid_t pid, std::vector<std::string> command) {
  std::vector<std::string> words = {"nsenter", "--target", std::to_string(pid),
                                    "--net",   "--uts",    "--pid",
                                    "--mount"};
  // Entering the mount name space changes the working directory.
  words.push_back("--wd=" + fs::current_path().string());
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

}  // namespace

std::string TwoNodes::unavailable_error(const fs::path& folder) {
  if (::geteuid() != 0) return "name spaces are made by root";
  const ProgramResult result =
      run_program({"unshare", "--net", "--uts", "--pid", "--fork", "sh", "-c",
                   "ip link add end0 type veth peer name end1 && "
                   "ip link add bridge0 type bridge"},
                  scratch(folder, "probe"));
  if (result.exit_code == 0) return "";
  return "no veth pair and bridge in a name space here: " +
         result.err.substr(0, result.err.find('\n'));
}

TwoNodes::TwoNodes(const fs::path& folder) : folder_(folder) {
  switch_ = make_space("switch");
  run(switch_, "ip link add bridge0 type bridge && ip link set bridge0 up");
  for (int node = 0; node < 2; ++node) {
    Space& space = nodes_[node] = make_space("node-" + std::to_string(node));
    const std::string port = "port" + std::to_string(node);
    // The process numbers are those outside of the name spaces, because the
    // switch's tools run there.
    run(switch_, "ip link add " + port + " type veth peer name eth0 netns " +
                     std::to_string(space.pid) + " && ip link set " + port +
                     " master bridge0 up");
    run(space, "ip addr add " + address(node) +
                   "/24 dev eth0 && ip link set eth0 up && ip link set lo up");
  }
}

TwoNodes::Space TwoNodes::make_space(const std::string& name) const {
  Space space;
  const bool is_switch = name == "switch";
  std::vector<std::string> command = {"unshare", "--net", "--uts"};
  if (!is_switch) {
    command.insert(command.end(),
                   {"--pid", "--fork", "--kill-child=KILL", "--mount-proc"});
  }
  command.insert(
      command.end(),
      {"sh", "-c", "hostname " + name + " && echo ready && exec sleep 3600"});
  const fs::path where = scratch(folder_, name);
  space.holder = std::make_unique<Program>(command, where);
  EXPECT_TRUE(wait_for_lines(where / "stdout.txt", 1, 10)) << name;
  space.pid = space.holder->pid();
  if (!is_switch) {
    const std::vector<pid_t> children = descendants(space.pid, "sleep");
    EXPECT_EQ(children.size(), 1u) << name;
    if (!children.empty()) space.pid = children.front();
  }
  return space;
}

std::string TwoNodes::run(const Space& space, const std::string& script) const {
  const ProgramResult result =
      run_program({"nsenter", "--target", std::to_string(space.pid), "--net",
                   "--uts", "sh", "-c", script},
                  scratch(folder_, "tools"));
  EXPECT_EQ(result.exit_code, 0) << script << ": " << result.err;
  return result.out;
}

std::vector<std::string> TwoNodes::on(int node,
                                      std::vector<std::string> command) const {
  return inside(nodes_[node].pid, std::move(command));
}

std::string TwoNodes::address(int node) {
  return "10.77.0." + std::to_string(node + 1);
}

void TwoNodes::cut() { run(switch_, "ip link set port1 down"); }
void TwoNodes::heal() { run(switch_, "ip link set port1 up"); }

void TwoNodes::limit_to(int megabits_per_second) {
  for (const char* port : {"port0", "port1"}) {
    run(switch_, "tc qdisc replace dev " + std::string(port) +
                     " root tbf rate " + std::to_string(megabits_per_second) +
                     "mbit burst 64kb limit 4mb");
  }
}

std::string TwoNodes::make_worse() {
  // Packets beyond the length of the queue are dropped.
  constexpr const char* kNetem = "netem delay 2ms 1ms loss 0.5%";
  constexpr const char* kQueue = "tbf rate 60mbit burst 16kb limit 24kb";
  const auto set = [](const std::string& discipline) {
    std::string script;
    for (const char* port : {"port0", "port1"}) {
      script += std::string(script.empty() ? "" : " && ") +
                "tc qdisc replace dev " + port + " root " + discipline;
    }
    return script;
  };
  const std::string has_netem =
      run(switch_, set(kNetem) + " 2>/dev/null && echo yes || echo no");
  if (has_netem == "yes\n") return kNetem;
  run(switch_, set(kQueue));
  return kQueue;
}

int64_t TwoNodes::dropped() const {
  const std::string counts =
      run(switch_, "tc -s qdisc show dev port0; tc -s qdisc show dev port1");
  const std::regex field("dropped ([0-9]+)");
  int64_t total = 0;
  for (auto found = std::sregex_iterator(counts.begin(), counts.end(), field);
       found != std::sregex_iterator(); ++found) {
    total += std::stoll((*found)[1]);
  }
  return total;
}

}  // namespace headroom::testing
