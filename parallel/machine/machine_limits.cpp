#include "parallel/machine/machine_limits.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> number_of(const std::string& word) {
  return parse_whole(word, 0);
}

// The first line, split at blanks.
std::vector<std::string> words_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Reads a limit. No value if the file is missing, or says "max" or -1.
std::optional<int64_t> first_number(const fs::path& path) {
  const std::vector<std::string> words = words_of(path);
  return words.empty() ? std::nullopt : number_of(words.front());
}

// A file of lines "name value" or "name: value unit".
std::map<std::string, int64_t> table_of(const fs::path& path) {
  std::map<std::string, int64_t> table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream stream(line);
    std::string name, value;
    stream >> name >> value;
    if (name.ends_with(':')) name.pop_back();
    if (const auto number = number_of(value)) table[name] = *number;
  }
  return table;
}

int64_t value_in(const std::map<std::string, int64_t>& table,
                 const std::string& name) {
  const auto found = table.find(name);
  return found == table.end() ? 0 : found->second;
}

// The process's group in one hierarchy of control groups, and the groups around
// it, innermost first.
using Groups = std::vector<fs::path>;

bool lists(const std::string& commas, const std::string& name) {
  return ("," + commas + ",").find("," + name + ",") != std::string::npos;
}

// Where a hierarchy is mounted, and which of its groups is visible there.
struct Mount {
  fs::path folder;
  std::string group;
};

// Returns the first mount of this controller's hierarchy. An empty `controller`
// means version 2.
std::optional<Mount> mount_of(const fs::path& root,
                              const std::string& controller) {
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // id parent device root mount-point options ... - type source super-options
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string id, parent, device, group, folder, type, source, options;
    left >> id >> parent >> device >> group >> folder;
    right >> type >> source >> options;
    const bool is_it = controller.empty()
                           ? type == "cgroup2"
                           : type == "cgroup" && lists(options, controller);
    if (is_it) return Mount{root / fs::path(folder).relative_path(), group};
  }
  return std::nullopt;
}

// The path of the process's group, from the root of its hierarchy.
std::optional<std::string> group_of(const fs::path& root,
                                    const std::string& controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    // hierarchy:controllers:path; version 2 names no controllers
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_it = controller.empty() ? line.starts_with("0::")
                                          : lists(controllers, controller);
    if (is_it) return line.substr(second + 1);
  }
  return std::nullopt;
}

Groups groups_of(const fs::path& root, const std::string& controller) {
  const std::optional<Mount> mount = mount_of(root, controller);
  if (!mount) return {};
  std::string group = group_of(root, controller).value_or("/");
  // A container usually sees its own group as the root of the hierarchy, while
  // /proc may name it from the machine's root.
  if (group == mount->group || group.starts_with(mount->group + "/")) {
    group = group.substr(mount->group.size());
  }
  std::error_code ignored;
  fs::path inside = fs::path(group).relative_path().lexically_normal();
  if (!fs::is_directory(mount->folder / inside, ignored)) inside.clear();
  Groups groups;
  for (; !inside.empty(); inside = inside.parent_path()) {
    groups.push_back(mount->folder / inside);
  }
  groups.push_back(mount->folder);
  return groups;
}

void narrow(std::optional<int64_t>& limit, std::optional<int64_t> other) {
  if (other) limit = limit ? std::min(*limit, *other) : *other;
}

// No value if there is no limit. Version 1 then reports a number that is larger
// than any machine's memory.
std::optional<int64_t> memory_limit_of(const fs::path& group, bool is_v2,
                                       int64_t machine_bytes) {
  std::optional<int64_t> most;
  if (is_v2) {
    most = first_number(group / "memory.max");
    // Above memory.high the kernel slows the processes down until they free
    // memory, which training never does.
    narrow(most, first_number(group / "memory.high"));
  } else {
    most = first_number(group / "memory.limit_in_bytes");
  }
  if (most && machine_bytes > 0 && *most >= machine_bytes) return std::nullopt;
  return most;
}

void read_memory_of(const fs::path& group, bool is_v2, int64_t machine_bytes,
                    MachineLimits& limits) {
  const auto most = memory_limit_of(group, is_v2, machine_bytes);
  if (!most) return;
  const auto used = first_number(
      group / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
  const auto stat = table_of(group / "memory.stat");
  const std::string total = is_v2 ? "" : "total_";  // sums over inner groups
  const int64_t cached = value_in(stat, total + "inactive_file") +
                         value_in(stat, total + "active_file");
  const int64_t taken = std::max<int64_t>(0, used.value_or(0) - cached);
  const int64_t left = std::max<int64_t>(0, *most - taken);
  if (limits.memory_bytes > 0 && left >= limits.free_bytes) return;
  limits.memory_bytes = *most;
  limits.free_bytes = left;
  limits.memory_is_of_container = true;
}

// Returns the bytes of the machine.
int64_t read_memory(const fs::path& root, const Groups& v1, const Groups& v2,
                    MachineLimits& limits) {
  const auto machine = table_of(root / "proc/meminfo");
  constexpr int64_t kKibibyte = 1024;
  const int64_t bytes = value_in(machine, "MemTotal") * kKibibyte;
  limits.memory_bytes = bytes;
  limits.free_bytes = value_in(machine, "MemAvailable") * kKibibyte;
  for (const fs::path& group : v1) read_memory_of(group, false, bytes, limits);
  for (const fs::path& group : v2) read_memory_of(group, true, bytes, limits);
  return bytes;
}

// The cores of a quota of processor time; no value without a quota.
std::optional<int64_t> cores_of_quota(std::optional<int64_t> quota,
                                      std::optional<int64_t> period) {
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return divided_up(*quota, *period);
}

void read_cores(const fs::path& root, const Groups& v1, const Groups& v2,
                MachineLimits& limits) {
  int64_t mask = 0;
  std::ifstream status(root / "proc/self/status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kName = "Cpus_allowed_list:";
    if (!line.starts_with(kName)) continue;
    std::istringstream ranges(line.substr(kName.size()));
    for (std::string range; std::getline(ranges, range, ',');) {
      range.erase(0, range.find_first_not_of(" \t"));
      const size_t dash = range.find('-');
      const auto first = number_of(range.substr(0, dash));
      const auto last =
          dash == std::string::npos ? first : number_of(range.substr(dash + 1));
      if (first && last && *first <= *last) mask += *last - *first + 1;
    }
  }
  if (mask == 0) mask = std::max(1u, std::thread::hardware_concurrency());
  std::optional<int64_t> quota;
  for (const fs::path& group : v1) {
    narrow(quota, cores_of_quota(first_number(group / "cpu.cfs_quota_us"),
                                 first_number(group / "cpu.cfs_period_us")));
  }
  for (const fs::path& group : v2) {
    const std::vector<std::string> words = words_of(group / "cpu.max");
    if (words.size() != 2) continue;
    narrow(quota, cores_of_quota(number_of(words[0]), number_of(words[1])));
  }
  limits.cores_of_mask = mask;
  limits.cores = std::min(mask, quota.value_or(mask));
  limits.cores_are_of_container = limits.cores < mask;
}

void read_oom_kills(const fs::path& root, const Groups& v1, const Groups& v2,
                    int64_t machine_bytes, MachineLimits& limits) {
  std::optional<int64_t> smallest;
  // In version 2, a group's count includes the groups inside it, so the
  // outermost group has the total. In version 1, each group counts only its own
  // kills.
  bool is_counted = false;
  int64_t kills = 0;
  for (const fs::path& group : v1) {
    const auto table = table_of(group / "memory.oom_control");
    is_counted |= table.contains("oom_kill");
    const int64_t of_group = value_in(table, "oom_kill");
    kills += of_group;
    if (of_group > 0) {
      narrow(smallest, memory_limit_of(group, false, machine_bytes));
    }
  }
  int64_t kills_v2 = 0;
  for (const fs::path& group : v2) {
    const auto table = table_of(group / "memory.events");
    is_counted |= table.contains("oom_kill");
    const int64_t of_group = value_in(table, "oom_kill");
    kills_v2 = std::max(kills_v2, of_group);
    if (of_group > 0) {
      narrow(smallest, memory_limit_of(group, true, machine_bytes));
    }
  }
  limits.oom_limit_bytes = smallest.value_or(machine_bytes);
  limits.oom_limit_is_of_container = smallest.has_value();
  limits.oom_kills = is_counted
                         ? kills + kills_v2
                         : value_in(table_of(root / "proc/vmstat"), "oom_kill");
}

std::string limit_text(int64_t bytes, bool is_of_container) {
  return format_bytes(bytes) + (is_of_container
                                    ? " by the container's limit (cgroup)"
                                    : " of this machine");
}

}  // namespace

std::string MachineLimits::memory_limit_text() const {
  return limit_text(memory_bytes, memory_is_of_container);
}

std::string MachineLimits::oom_limit_text() const {
  return limit_text(oom_limit_bytes, oom_limit_is_of_container);
}

std::string MachineLimits::memory_text() const {
  return memory_limit_text() + ", " + format_bytes(free_bytes) + " free";
}

MachineLimits read_machine_limits(const fs::path& root) {
  MachineLimits limits;
  const Groups v2 = groups_of(root, "");
  const Groups memory = groups_of(root, "memory");
  const int64_t machine_bytes = read_memory(root, memory, v2, limits);
  read_cores(root, groups_of(root, "cpu"), v2, limits);
  read_oom_kills(root, memory, v2, machine_bytes, limits);
  for (const Groups& groups : {groups_of(root, "pids"), v2}) {
    for (const fs::path& group : groups) {
      narrow(limits.most_threads, first_number(group / "pids.max"));
    }
  }
  return limits;
}

MachineLimits read_machine_limits() {
  const char* const root = std::getenv(kMachineRootVariable);
  return read_machine_limits(root == nullptr ? "/" : root);
}

}  // namespace headroom
