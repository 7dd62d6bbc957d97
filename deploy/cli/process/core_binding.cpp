#include "deploy/cli/process/core_binding.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::cli {

Cores parse_cores(const std::string& list) {
  Cores cores;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0, last = 0;
    const int count = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (count == 1) last = first;
    if (count < 1 || first < 0 || last < first || last >= CPU_SETSIZE) {
      return {};
    }
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

namespace {

Cores read_cores(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return parse_cores(line);
}

Cores both(const Cores& some, const Cores& others) {
  Cores cores;
  std::ranges::set_intersection(some, others, std::back_inserter(cores));
  return cores;
}

}  // namespace

Cores cores_near_device(const std::string& bus_address,
                        const std::filesystem::path& folder) {
  // The address comes from the driver. It must be a folder's name, not a path.
  if (bus_address.empty() || bus_address.find('/') != std::string::npos) {
    return {};
  }
  return read_cores(folder / bus_address / "local_cpulist");
}

std::optional<Cores> cores_of_card_worker(const Cores& near,
                                          const Cores& allowed, int threads) {
  const Cores cores = both(near, allowed);
  if (cores.empty()) return std::nullopt;
  const bool is_choice = cores.size() < allowed.size() &&
                         static_cast<int>(cores.size()) >= threads;
  return is_choice ? cores : Cores();
}

std::vector<Cores> numa_nodes(const std::filesystem::path& folder) {
  const auto read = [&](const std::string& name) {
    return read_cores(folder / name);
  };
  std::vector<Cores> nodes;
  for (const int node : read("online")) {
    Cores cores = read(cat("node", node, "/cpulist"));
    if (!cores.empty()) nodes.push_back(std::move(cores));
  }
  return nodes;
}

Cores cores_of_worker(const std::vector<Cores>& nodes, const Cores& allowed,
                      int index, int count, int threads) {
  HEADROOM_CHECK(index >= 0 && index < count, "a worker of this machine");
  std::vector<Cores> usable;  // the usable cores of each node
  int64_t total = 0;
  for (const Cores& node : nodes) {
    Cores cores = both(node, allowed);
    total += static_cast<int64_t>(cores.size());
    usable.push_back(std::move(cores));
  }
  if (total == 0) return {};
  const int64_t first = total * index / count;
  const int64_t last = std::max(first + 1, total * (index + 1) / count);
  Cores bound;
  int64_t begin = 0;
  for (const Cores& cores : usable) {
    const int64_t end = begin + static_cast<int64_t>(cores.size());
    if (begin < last && first < end) {
      bound.insert(bound.end(), cores.begin(), cores.end());
    }
    begin = end;
  }
  const auto size = static_cast<int64_t>(bound.size());
  if (size == total || size < threads) return {};
  std::sort(bound.begin(), bound.end());
  return bound;
}

bool is_bound_by_default(const Environment& environment) {
  // mpirun passes its options on binding to its processes in these variables.
  return environment.contains("OMPI_COMM_WORLD_RANK") &&
         !environment.contains("OMPI_MCA_hwloc_base_binding_policy") &&
         !environment.contains("OMPI_MCA_hwloc_base_cpu_set") &&
         !environment.contains("OMPI_MCA_hwloc_base_cpu_list");
}

Cores allowed_cores() {
  Cores cores;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

int use_all_cores() {
  cpu_set_t all;
  CPU_ZERO(&all);
  // The kernel ignores cores that do not exist or are not allowed.
  for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &all);
  sched_setaffinity(0, sizeof all, &all);
  return static_cast<int>(allowed_cores().size());
}

}  // namespace headroom::cli
