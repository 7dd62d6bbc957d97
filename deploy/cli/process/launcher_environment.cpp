#include "deploy/cli/process/launcher_environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/text.h"

namespace headroom::cli {
namespace {

// An upper bound on the number of processes of a job.
constexpr int kMostRanks = 1 << 20;
constexpr int kLastPort = 65535;
// SageMaker's list of hosts, for images without its Python toolkit.
constexpr const char* kSageMakerConfig =
    "/opt/ml/input/config/resourceconfig.json";

struct Variable {
  std::string name;
  std::string value;
};

// Returns the first variable of "A|B" that is set, with its value.
std::optional<Variable> set_among(const Environment& environment,
                                  std::string_view names) {
  while (!names.empty()) {
    const size_t end = std::min(names.find('|'), names.size());
    const std::string name(names.substr(0, end));
    const auto found = environment.find(name);
    if (found != environment.end()) return Variable{name, found->second};
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return std::nullopt;
}

// Makes a job's name usable as a file name.
std::string file_name_of(std::string text) {
  for (char& c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' &&
        c != '-') {
      c = '_';
    }
  }
  return text;
}

std::string with_hyphen(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second
                                         : first + "-" + second;
}

// The number of tasks on node `node` in Slurm's list "2(x3),1" (three nodes
// with 2 tasks, one with 1). nullopt if the list is shorter or malformed.
std::optional<int> tasks_of_node(const std::string& list, int node) {
  std::istringstream entries(list);
  std::string entry;
  while (std::getline(entries, entry, ',')) {
    int tasks = 0, nodes = 1;
    if (std::sscanf(entry.c_str(), "%d(x%d)", &tasks, &nodes) < 1) break;
    if (tasks < 1 || nodes < 1) break;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

// "node-1.cluster" -> "node-1".
std::string first_label(const std::string& host) {
  const bool is_address =
      !host.empty() &&
      host.find_first_not_of("0123456789.") == std::string::npos;
  return is_address ? host : host.substr(0, host.find('.'));
}

// Returns each host once, in the order of first appearance.
std::vector<std::string> without_repeats(const std::vector<std::string>& all) {
  std::vector<std::string> once;
  for (const std::string& host : all) {
    if (std::ranges::find(once, host) == once.end()) once.push_back(host);
  }
  return once;
}

std::vector<std::string> words_of(std::string text, const char* between) {
  std::ranges::replace_if(
      text,
      [&](char c) {
        return std::string_view(between).find(c) != std::string::npos;
      },
      ' ');
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// Reads the variables of one launcher.
class Reader {
 public:
  Reader(const Launcher& row, const Environment& environment,
         const LauncherMachine& machine)
      : row_(row), environment_(environment), machine_(machine) {}

  LauncherJob read() const {
    LauncherJob job;
    job.launcher = &row_;
    job.place.launcher = row_.name;
    const std::vector<std::string> hosts = all_hosts();
    job.has_size = !row_.size.empty() || !hosts.empty();
    if (!job.has_size && row_.started == Started::kAgents) {
      throw refusal(shown(row_.rank) +
                    " names a rank, and no variable says how many there are");
    }
    LauncherPlace& place = job.place;
    place.size = read_size(hosts);
    place.rank = read_rank(hosts);
    if (job.has_size)
      require_below(row_.rank, place.rank, size_name(), place.size);
    move_main_node(place);
    read_local(job);
    read_devices(place);
    place.job_id =
        file_name_of(with_hyphen(text_of(row_.job), text_of(row_.job_again)));
    read_address(job, hosts);
    read_restarts(job);
    if (row_.error_form == ErrorFile::kTorchelastic) {
      job.error_file = text_of(row_.error_file);
    } else if (row_.error_form == ErrorFile::kText) {
      job.error_file = row_.error_file;
    }
    return job;
  }

 private:
  std::string text_of(std::string_view names) const {
    const auto variable = set_among(environment_, names);
    return variable ? variable->value : "";
  }

  // A variable as it is set, for messages: "RANK='2'".
  std::string shown(std::string_view names) const {
    const auto variable = set_among(environment_, names);
    return variable ? variable->name + "='" + variable->value + "'"
                    : std::string(names);
  }

  // The first variable by which the launcher was recognised, for messages.
  std::string first_name() const {
    return std::string(row_.recognised_by.front());
  }

  Error refusal(const std::string& what) const {
    const std::string name(row_.name);
    return Error(
        "launcher", name + ": " + what,
        "start through " + name + " anew, or alone: unset " + first_name());
  }

  int number_of(std::string_view names) const {
    const auto variable = set_among(environment_, names);
    if (!variable) {
      throw refusal(first_name() + " is set and " +
                    std::string(names.substr(0, names.find('|'))) +
                    " is missing");
    }
    const auto number = parse_whole(variable->value, 0, kMostRanks);
    if (!number) {
      throw refusal(
          cat(shown(names), " is no whole number from 0 to ", kMostRanks));
    }
    return static_cast<int>(*number);
  }

  void require_below(std::string_view rank_name, int rank,
                     std::string_view size_name, int size) const {
    if (rank < size) return;
    throw refusal(cat(shown(rank_name), " and ", shown(size_name),
                      " contradict each other: ranks go from 0 to ",
                      std::max(0, size - 1)));
  }

  std::string_view size_name() const {
    return row_.size.empty() ? row_.hosts : row_.size;
  }

  int read_size(const std::vector<std::string>& hosts) const {
    if (row_.size.empty())
      return std::max<int>(1, static_cast<int>(hosts.size()));
    const int size = number_of(row_.size);
    if (size < 1)
      throw refusal(shown(row_.size) + " is no number of processes");
    if (!hosts.empty() && static_cast<int>(hosts.size()) != size) {
      throw refusal(cat(row_.hosts, " lists ", hosts.size(), " machines, and ",
                        shown(row_.size)));
    }
    return size;
  }

  int read_rank(const std::vector<std::string>& hosts) const {
    if (!row_.rank.empty()) return number_of(row_.rank);
    const std::string own =
        row_.own_host.empty() ? machine_.name : text_of(row_.own_host);
    auto found = std::ranges::find(hosts, own);
    if (found == hosts.end()) {
      found = std::ranges::find(hosts, first_label(own), first_label);
    }
    if (found == hosts.end()) {
      throw refusal(shown(row_.hosts) + " does not name this machine, " +
                    (own.empty() ? "which has no name" : own));
    }
    return static_cast<int>(found - hosts.begin());
  }

  // Makes the job's main node rank 0; the nodes before the main node get the
  // next higher rank.
  void move_main_node(LauncherPlace& place) const {
    if (row_.main_node.empty()) return;
    const int main = number_of(row_.main_node);
    require_below(row_.main_node, main, row_.size, place.size);
    if (place.rank == main) {
      place.rank = 0;
    } else if (place.rank < main) {
      ++place.rank;
    }
  }

  void read_local(LauncherJob& job) const {
    LauncherPlace& place = job.place;
    if (row_.started == Started::kNodes) return;
    if (row_.started == Started::kWorkers) {
      job.local_worker = number_of(row_.local_rank);
      job.local_workers = number_of(row_.local_size);
      require_below(row_.local_rank, job.local_worker, row_.local_size,
                    job.local_workers);
      return;
    }
    // Without any of these variables each process counts as the only one on its
    // host.
    const bool has_local = set_among(environment_, row_.local_rank) ||
                           set_among(environment_, row_.local_size) ||
                           !row_.node.empty() || !row_.nodes.empty();
    if (!has_local) return;
    place.local_rank = number_of(row_.local_rank);
    place.local_size = read_local_size(place);
    require_below(row_.local_rank, place.local_rank,
                  row_.local_size.empty() ? row_.nodes : row_.local_size,
                  place.local_size);
    if (place.local_size > place.size) {
      throw refusal(shown(row_.local_size) + " and " + shown(row_.size) +
                    " contradict each other: a machine has more processes "
                    "than the job");
    }
  }

  int read_local_size(const LauncherPlace& place) const {
    if (!row_.node.empty()) {
      const auto tasks =
          tasks_of_node(text_of(row_.local_size), number_of(row_.node));
      if (tasks) return *tasks;
      throw refusal(shown(row_.local_size) +
                    " does not list the tasks of this machine, " +
                    shown(row_.node));
    }
    if (!row_.local_size.empty()) return number_of(row_.local_size);
    const int nodes = number_of(row_.nodes);
    if (nodes < 1 || place.size % nodes != 0) {
      throw refusal(shown(row_.size) + " processes on " + shown(row_.nodes) +
                    " machines: not the same number on each");
    }
    return place.size / nodes;
  }

  void read_devices(LauncherPlace& place) const {
    // Slurm may write the kind of card first: "h100:2". A list of several kinds
    // has no single number.
    const std::string text = text_of(row_.devices);
    const auto number =
        text.find(',') == std::string::npos
            ? parse_whole(text.substr(text.rfind(':') + 1), 1, kMostRanks)
            : std::nullopt;
    place.workers = static_cast<int>(number.value_or(0));
    place.counts_cards = row_.started != Started::kWorkers;
    place.promises_cards = row_.promises_cards && place.workers > 0;
  }

  // The name of the variable that lists the hosts. If row_.hosts has a '*',
  // several variables match: returns the one whose list contains this pod.
  std::string hosts_name() const {
    const size_t star = row_.hosts.find('*');
    if (star == std::string_view::npos) return std::string(row_.hosts);
    const std::string_view head = row_.hosts.substr(0, star);
    const std::string_view tail = row_.hosts.substr(star + 1);
    std::vector<std::string> names;
    for (const auto& [name, value] : environment_) {
      if (name.size() <= head.size() + tail.size() || !name.starts_with(head) ||
          !name.ends_with(tail)) {
        continue;
      }
      names.push_back(name);
      const std::vector<std::string> hosts = words_of(value, ",\n");
      const auto own =
          std::ranges::find(hosts, first_label(machine_.name), first_label);
      if (own != hosts.end()) return name;
    }
    if (names.size() == 1) return names.front();
    throw refusal(joined(names, ", ") + ": none lists this pod, " +
                  machine_.name);
  }

  // Returns an empty list if the row has no list of hosts.
  std::vector<std::string> all_hosts() const {
    if (row_.host_list == HostList::kNone) return {};
    const std::string name = hosts_name();
    const std::string text = text_of(name);
    std::vector<std::string> hosts;
    switch (row_.host_list) {
      case HostList::kNone:
        break;
      case HostList::kLines:
      case HostList::kCommas:
        hosts = words_of(text, ",\n");
        break;
      case HostList::kJson: {
        const auto json = nlohmann::json::parse(text, nullptr, false);
        for (const auto& host :
             json.is_array() ? json : nlohmann::json::array()) {
          if (!host.is_string())
            throw refusal(shown(name) + " is no list of names");
          hosts.push_back(host.get<std::string>());
        }
        std::ranges::sort(hosts);
        break;
      }
      case HostList::kCounts: {
        const std::vector<std::string> words = words_of(text, " ");
        for (size_t i = 0; i < words.size(); i += 2) {
          if (i + 1 == words.size() ||
              !parse_whole(words[i + 1], 0, kMostRanks)) {
            throw refusal(shown(name) + " is no list of names and numbers");
          }
          hosts.push_back(words[i]);
        }
        break;
      }
      case HostList::kFileOfSlots: {
        const auto lines = machine_.read(text);
        if (!lines) {
          throw Error("launcher",
                      std::string(row_.name) + ": " + shown(name) +
                          " cannot be read on " + machine_.name,
                      "copy it to a shared folder and start with " + name +
                          "=COPY in the environment");
        }
        hosts = words_of(*lines, "\n");
        break;
      }
    }
    hosts = without_repeats(hosts);
    if (hosts.empty() || hosts.size() > kMostRanks) {
      throw refusal(shown(name) + " lists no machine");
    }
    return hosts;
  }

  void read_address(LauncherJob& job,
                    const std::vector<std::string>& hosts) const {
    if (job.place.size < 2 || (row_.address.empty() && hosts.empty())) return;
    job.coordinator_from = row_.address.empty() ? row_.hosts : row_.address;
    std::string host =
        row_.address.empty() ? hosts.front() : text_of(row_.address);
    // AWS Batch gives the main node's address to all nodes but the main node.
    const bool is_own = !row_.main_node.empty() && job.place.rank == 0;
    if (host.empty() && !is_own) {
      throw refusal(std::string(row_.address) +
                    ", the address of rank 0's machine, is missing");
    }
    const bool is_plain = std::ranges::all_of(host, [](unsigned char c) {
      return std::isgraph(c) != 0 && c != '/' && c != '@';
    });
    if (!is_plain)
      throw refusal(shown(job.coordinator_from) + " is no address");
    if (host.find(':') != std::string::npos && !host.starts_with('[')) {
      host = "[" + host + "]";
    }
    job.coordinator = cat(host, ":", read_port());
  }

  // torchrun writes its error files into a folder of its own process:
  // /tmp/torchelastic_x/JOB_y/attempt_0/0/error.json.
  void read_restarts(LauncherJob& job) const {
    if (row_.restarts.empty()) return;
    if (set_among(environment_, row_.restarts)) {
      job.restarts = number_of(row_.restarts);
    }
    const std::string file = text_of(row_.error_file);
    const size_t attempt = file.rfind("/attempt_");
    if (attempt != std::string::npos) {
      job.starter = machine_.name + ":" + file.substr(0, attempt);
    }
    // torchrun calls a job without a name "none".
    const std::string name = text_of(row_.run_id);
    const std::string place = text_of(row_.address) + ":" + text_of(row_.port);
    job.run_key = name == "none" ? "" : name;
    job.local_key =
        cat(name, " ", place, " ", job.place.rank, " ", job.restarts);
  }

  int read_port() const {
    const auto variable = set_among(environment_, row_.port);
    if (!variable) return kCoordinatorPort;
    const auto port = parse_whole(variable->value, 1, kLastPort);
    if (!port) throw refusal(shown(row_.port) + " is no port from 1 to 65535");
    const auto above = static_cast<int>(*port) + row_.port_step;
    return above <= kLastPort ? above
                              : static_cast<int>(*port) - row_.port_step;
  }

  const Launcher& row_;
  const Environment& environment_;
  const LauncherMachine& machine_;
};

bool is_recognised(const Launcher& row, const Environment& environment) {
  for (const std::string_view name : row.recognised_by) {
    if (!name.empty() && !environment.contains(std::string(name))) return false;
  }
  if (!row.absent.empty() && environment.contains(std::string(row.absent))) {
    return false;
  }
  return row.is_meant == nullptr || row.is_meant(environment);
}

// The environment, with the variables that SageMaker's toolkit would derive
// from the service's own file.
Environment with_sagemaker_hosts(const Environment& environment,
                                 const LauncherMachine& machine) {
  if (!environment.contains("TRAINING_JOB_ARN") ||
      environment.contains("SM_HOSTS")) {
    return environment;
  }
  const auto text = machine.read(kSageMakerConfig);
  const auto json = nlohmann::json::parse(text.value_or(""), nullptr, false);
  if (!json.is_object() || !json.contains("hosts") ||
      !json.contains("current_host") || !json["current_host"].is_string()) {
    return environment;
  }
  Environment more = environment;
  more["SM_HOSTS"] = json["hosts"].dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  more["SM_CURRENT_HOST"] = json["current_host"].get<std::string>();
  return more;
}

// Refuses an environment in which an unknown launcher started one process per
// device: without the number of machines each process would train alone.
void refuse_unknown(const Environment& environment) {
  if (environment.contains("PET_RDZV_ENDPOINT")) {
    throw Error("launcher",
                "PET_RDZV_ENDPOINT is set, as by an elastic PyTorchJob, and "
                "nothing tells this machine's rank, which torchrun agrees upon",
                "start torchrun --no-python headroom train ..., or alone: "
                "unset PET_RDZV_ENDPOINT");
  }
  const auto size = environment.find("WORLD_SIZE");
  if (size == environment.end() || size->second == "1" ||
      !environment.contains("RANK") || !environment.contains("LOCAL_RANK")) {
    return;
  }
  throw Error("launcher",
              "RANK, LOCAL_RANK and WORLD_SIZE='" + size->second +
                  "' are set and GROUP_RANK is not, so nothing tells which "
                  "processes share a machine",
              "start through torchrun, or alone: unset RANK");
}

// Whether `outer` gives the same rank as `row` and also a number of ranks, so
// that it can replace `row`.
bool gives_way(const Launcher& row, const Launcher& outer,
               const Environment& environment, const LauncherMachine& machine) {
  const auto number_of = [&](std::string_view names) {
    const auto variable = set_among(environment, names);
    return parse_whole(variable ? variable->value : "", 0, kMostRanks);
  };
  try {
    const LauncherJob other = Reader(outer, environment, machine).read();
    return other.has_size && number_of(row.rank) == other.place.rank &&
           number_of(row.size).value_or(other.place.size) == other.place.size;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

LauncherMachine this_machine() {
  return {.name = this_host_name(),
          .read = [](const std::string& path) -> std::optional<std::string> {
            std::ifstream in(path);
            if (!in) return std::nullopt;
            std::ostringstream text;
            text << in.rdbuf();
            return text.str();
          }};
}

int LauncherJob::exit_code_of_leaver() const {
  return launcher->exit == WhoseExit::kPod
             ? static_cast<int>(ExitCode::kInterrupted)
             : 0;
}

std::string LauncherJob::around_text() const {
  if (around.empty()) return "";
  const std::string name(launcher->name);
  return name + " inside " + joined(around, " inside ") + ": " + name +
         "'s variables count";
}

std::optional<LauncherJob> read_launcher(const Environment& given,
                                         const LauncherMachine& machine) {
  const Environment environment = with_sagemaker_hosts(given, machine);
  std::vector<const Launcher*> found;
  for (const Launcher& row : launchers()) {
    if (is_recognised(row, environment)) found.push_back(&row);
  }
  if (found.empty()) {
    refuse_unknown(environment);
    return std::nullopt;
  }
  size_t inner = 0;
  // For example, a PMI rank that srun gave to its task belongs to srun's job.
  for (size_t i = 1; i < found.size() && found[inner]->gives_way; ++i) {
    if (gives_way(*found[inner], *found[i], environment, machine)) inner = i;
  }
  LauncherJob job = Reader(*found[inner], environment, machine).read();
  for (size_t i = inner + 1; i < found.size(); ++i) {
    if (!found[i]->gives_way) job.around.emplace_back(found[i]->name);
  }
  return job;
}

bool wait_for_rank_zero(const LauncherPlace& place,
                        std::chrono::milliseconds patience) {
  if (place.rank == 0) return false;
  const interrupts::Watch watch;
  return interrupts::wait(patience);
}

}  // namespace headroom::cli
