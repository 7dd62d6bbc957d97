#include "tests/repo/include_rules.h"

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <set>

namespace headroom {
namespace {

struct Rule {
  std::string folder;  // the rule with the longest match is used
  // Rooms that it may include, besides itself.
  std::vector<std::string> folders;
  std::vector<std::string> libraries;  // besides std
};

// One row per room. These groups of rooms keep the rows short.
const std::vector<std::string> kConfigs = {"configs", "configs/layers",
                                           "configs/yaml", "parallel/base"};
// The parts of a detector; they do not depend on ranks.
const std::vector<std::string> kDetector = {
    "worker/kernels", "worker/kernels/cpu", "worker/model",
    "worker/weights", "worker/loss",        "worker/optim",
    "worker/metrics", "worker/pytorch_file"};
const std::vector<std::string> kData = {
    "worker/data/packs",    "worker/data/codecs",  "worker/data/labels",
    "worker/data/sampling", "worker/data/augment", "worker/data/tiles",
    "worker/data/loader"};
// The mechanisms that split work, without the plan itself.
const std::vector<std::string> kMechanisms = {
    "parallel/collectives", "parallel/data_parallel", "parallel/zero",
    "parallel/pipeline",    "parallel/spatial",       "parallel/activations",
    "parallel/devices"};

std::vector<std::string> rooms(
    std::initializer_list<std::vector<std::string>> groups) {
  std::vector<std::string> all;
  for (const std::vector<std::string>& group : groups) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

using List = std::vector<std::string>;

const std::vector<Rule>& rules() {
  static const List exchange = {"parallel/base", "parallel/plan",
                                "parallel/collectives"};
  static const List plans = {"parallel/plan", "parallel/predict"};
  static const std::vector<Rule> all = {
      // The settings of a run.
      {"configs/yaml", {"parallel/base"}, {}},
      {"configs/layers", {"configs/yaml", "parallel/base"}, {}},
      {"configs", rooms({kConfigs, {"parallel/plan"}}), {}},
      // The plan, its cost, and the choice of a plan for a run.
      {"parallel", {}, {"torch", "json"}},  // for the precompiled headers
      {"parallel/base", {}, {"xxhash", "system"}},
      {"parallel/plan", {"parallel/base"}, {"json"}},
      // The processor, the limits of the computer, and programs beside the
      // process.
      {"parallel/machine", {"parallel/base"}, {"system"}},
      {"parallel/predict",
       rooms({kConfigs, {"parallel/machine", "parallel/plan"}}),
       {}},
      {"parallel/planner",
       rooms({kConfigs, plans, {"worker/pytorch_file"}}),
       {"json", "xxhash"}},
      // The mechanisms that split and exchange work; they do not depend on
      // detectors.
      {"parallel/collectives",
       {"parallel/base", "parallel/plan"},
       {"torch", "gloo", "system"}},
      {"parallel/data_parallel", exchange, {"torch"}},
      {"parallel/spatial", exchange, {"torch"}},
      {"parallel/activations", exchange, {"torch", "system"}},
      {"parallel/pipeline", exchange, {"torch"}},
      {"parallel/zero", exchange, {"torch"}},
      // This room does not use LibTorch, because launchers use it too.
      {"parallel/nvml", {"parallel/base"}, {"system"}},
      {"parallel/network", {"parallel/base"}, {"system"}},
      {"parallel/devices",
       rooms({exchange, {"parallel/activations", "worker/kernels"}}),
       {"torch", "system"}},
      // The plugin: all code that needs CUDA is here, and no other code needs
      // the plugin.
      {"parallel/cuda/kernels",
       {"configs/layers", "parallel/base", "parallel/devices",
        "worker/kernels"},
       {"torch", "cuda"}},
      {"parallel/cuda",
       rooms({exchange,
              {"parallel/activations", "parallel/cuda/kernels",
               "parallel/devices", "parallel/nvml", "worker/kernels"}}),
       {"torch", "cuda", "system"}},
      {"proto", {"parallel/base", "parallel/plan"}, {"grpc", "json"}},
      // Membership and layout of the run.
      {"coordinator/run",
       rooms({kConfigs, {"parallel/plan", "parallel/planner", "proto"}}),
       {"json"}},
      {"coordinator/log",
       {"coordinator/run", "parallel/base", "parallel/plan", "proto"},
       {"grpc", "system"}},
      {"coordinator/service",
       {"configs", "coordinator/run", "coordinator/log", "parallel/base",
        "parallel/plan", "parallel/planner", "proto"},
       {"grpc", "xxhash", "system"}},
      // The parts of a detector. The interfaces of devices use tensors; the
      // other files are also compiled by nvcc without LibTorch's headers.
      {"worker/kernels", {"configs/layers", "parallel/base"}, {"torch"}},
      {"worker/kernels/cpu",
       {"configs/layers", "parallel/base", "parallel/machine",
        "worker/kernels"},
       {"torch", "system", "vector"}},
      {"worker/model",
       {"configs/layers", "parallel/base", "worker/kernels",
        "worker/kernels/cpu"},
       {"torch", "xxhash"}},
      // Reads PyTorch's files without LibTorch.
      {"worker/pytorch_file", {"parallel/base"}, {}},
      {"worker/weights",
       {"configs/layers", "parallel/base", "worker/model",
        "worker/pytorch_file"},
       {"torch", "json", "system"}},
      {"worker/loss",
       rooms({kConfigs, {"worker/kernels", "worker/kernels/cpu"}}),
       {"torch"}},
      {"worker/optim", rooms({kConfigs, {"worker/kernels"}}), {"torch"}},
      {"worker/metrics", {"parallel/base", "worker/kernels"}, {"torch"}},
      // Data: files to pixels and boxes, samples, batches.
      {"worker/data/packs", {"parallel/base"}, {"xxhash", "system"}},
      {"worker/data/codecs",
       {"parallel/base", "worker/data/packs"},
       {"images", "system"}},
      {"worker/data/sampling", {"parallel/base", "parallel/plan"}, {}},
      {"worker/data/labels",
       rooms({kConfigs,
              {"parallel/machine", "worker/data/codecs", "worker/data/packs",
               "worker/maps"}}),
       {"images", "json", "xxhash", "system"}},
      {"worker/data/augment",
       rooms({kConfigs,
              {"parallel/machine", "worker/data/codecs", "worker/data/labels",
               "worker/data/sampling", "worker/kernels"}}),
       {"images", "json", "vector"}},
      {"worker/data/tiles",
       rooms({kConfigs,
              {"worker/data/codecs", "worker/data/labels",
               "worker/data/sampling", "worker/data/augment"}}),
       {"images", "json", "xxhash", "system"}},
      {"worker/data/loader",
       rooms({kConfigs,
              kData,
              {"parallel/machine", "parallel/plan", "worker/loss"}}),
       {"torch", "images", "xxhash", "system"}},
      {"worker/anchors",
       rooms({kConfigs,
              {"worker/data/codecs", "worker/data/labels",
               "worker/data/sampling"}}),
       {}},
      // The output of a run.
      {"worker/chart", {"parallel/base", "worker/data/codecs"}, {"images"}},
      {"worker/video",
       {"parallel/base", "parallel/machine"},
       {"json", "system"}},
      {"worker/maps", {"parallel/base"}, {"gdal", "system"}},
      {"worker/detect",
       rooms({kData,
              {"parallel/base", "worker/chart", "worker/metrics", "worker/maps",
               "worker/model", "worker/video"}}),
       {"torch", "images", "json", "system"}},
      {"worker/pictures",
       rooms({kData,
              {"parallel/base", "worker/chart", "worker/detect",
               "worker/metrics"}}),
       {"images"}},
      {"worker/export",
       {"configs/layers", "parallel/base", "worker/metrics", "worker/model",
        "worker/weights"},
       {"torch"}},
      // One training step, and the run around it.
      {"worker/control",
       {"parallel/base", "parallel/machine", "parallel/plan", "proto"},
       {"system"}},
      {"worker/memory",
       rooms({plans,
              {"parallel/base", "parallel/activations", "parallel/collectives",
               "parallel/devices", "worker/chart", "worker/data/codecs",
               "worker/data/loader", "worker/kernels/cpu", "worker/model"}}),
       {"torch", "json", "system"}},
      {"worker/step",
       rooms({kConfigs,
              plans,
              kMechanisms,
              kDetector,
              kData,
              {"parallel/machine", "worker/memory"}}),
       {"torch", "json", "system"}},
      {"worker/checkpoint",
       rooms({kConfigs,
              plans,
              kMechanisms,
              kDetector,
              {"worker/memory", "worker/step"}}),
       {"torch", "json", "system"}},
      {"worker/validation",
       rooms({kConfigs,
              plans,
              kMechanisms,
              kDetector,
              kData,
              {"parallel/machine", "worker/memory", "worker/step",
               "worker/detect", "worker/pictures"}}),
       {"torch", "json", "system"}},
      {"worker/run",
       rooms({kConfigs,
              plans,
              kMechanisms,
              kDetector,
              kData,
              {"parallel/machine", "parallel/network", "parallel/planner",
               "proto", "worker/anchors", "worker/checkpoint", "worker/chart",
               "worker/control", "worker/memory", "worker/pictures",
               "worker/step", "worker/validation"}}),
       {"torch", "json", "system"}},
      {"worker/tools",
       rooms({kConfigs,
              plans,
              kMechanisms,
              kDetector,
              kData,
              {"worker/anchors", "worker/chart", "worker/control",
               "worker/detect", "worker/export", "worker/maps", "worker/run",
               "worker/step", "worker/validation", "worker/video"}}),
       {"torch", "images", "json", "system"}},
      {"worker/more_tools",
       rooms({kConfigs,
              plans,
              kMechanisms,
              kDetector,
              kData,
              {"parallel/machine", "worker/control", "worker/export",
               "worker/run", "worker/step", "worker/tools",
               "worker/validation"}}),
       {"torch", "json", "system"}},
      // Only main includes both runs and tools.
      {"worker",
       rooms({kConfigs,
              {"parallel/activations", "parallel/base", "proto",
               "worker/control", "worker/kernels/cpu", "worker/more_tools",
               "worker/run", "worker/tools"}}),
       {"torch", "system"}},
      // The files of a run's directory, read while they grow.
      {"deploy/records", {"parallel/base"}, {"json", "system"}},
      // Shows a run in the browser.
      {"deploy/page",
       rooms({kConfigs,
              plans,
              {"coordinator/service", "deploy/records", "parallel/planner",
               "proto",
               // The report's pictures are made smaller.
               "worker/data/codecs"}}),
       {"images", "json", "system", "http"}},
      // The program `headroom`.
      {"deploy/cli/args",
       rooms(
           {kConfigs,
            {"deploy/records", "parallel/plan", "parallel/planner", "proto"}}),
       {"system"}},
      {"deploy/cli/process",
       rooms({kConfigs,
              plans,
              {"coordinator/run", "coordinator/service", "deploy/records",
               "parallel/machine", "parallel/network", "parallel/nvml",
               "parallel/planner", "proto"}}),
       {"json", "system"}},
      {"deploy/cli/show",
       rooms({kConfigs,
              {"coordinator/run", "deploy/cli/process", "deploy/records",
               "parallel/plan",
               // It computes which samples each step has to use.
               "worker/data/sampling"}}),
       {"json", "system"}},
      {"deploy/cli/plan",
       rooms({kConfigs,
              plans,
              {"coordinator/run", "deploy/cli", "deploy/cli/args",
               "deploy/cli/process", "deploy/cli/show", "parallel/machine",
               "parallel/nvml", "parallel/planner", "proto"}}),
       {"json", "system"}},
      {"deploy/cli",
       rooms({kConfigs,
              plans,
              {"coordinator/run", "coordinator/service", "deploy/cli/args",
               "deploy/cli/process", "deploy/cli/show", "deploy/fetch",
               "deploy/notify", "deploy/page", "deploy/records",
               "parallel/machine", "parallel/network", "parallel/nvml",
               "parallel/planner", "proto"}}),
       {"json", "system", "grpc"}},
      // Programs that send a run's progress to services.
      {"deploy/notify",
       {"deploy/records", "parallel/base", "proto"},
       {"json", "system"}},
      // Weights that the user asks for.
      {"deploy/fetch",
       {"configs", "deploy/cli/process", "parallel/base"},
       {"json", "system"}},
      {"deploy/bundle", {}, {"system"}},
      {"deploy/local",
       {"parallel/base", "worker/data/codecs"},
       {"images", "system", "cli"}},
  };
  return all;
}

// Exceptions: headers that one file may include in addition to its room's row,
// with the reason.
const std::multimap<std::string, std::string>& exceptions() {
  static const std::multimap<std::string, std::string> all = {
      // `headroom plan` draws the schedule with this header, which includes no
      // other header of the project.
      {"deploy/cli/plan/plan_report.cpp", "parallel/pipeline/schedule.h"},
      {"coordinator/service/certificates.cpp", "ssl"},
      {"proto/member_identity.cpp", "ssl"},
      // Opens a connection itself to find out why a connection of gRPC failed.
      {"proto/connection_fault.cpp", "ssl"},
      {"proto/connection_fault.cpp", "system"},
      {"coordinator/service/metrics.cpp", "prometheus"},
      {"deploy/fetch/download.cpp", "ssl"},  // SHA-256
      {"deploy/notify/web_request.cpp", "ssl"},
      {"proto/beat_channel.cpp", "system"},      // a socket within one process
      {"proto/channel_security.cpp", "system"},  // the permissions of a key
      {"proto/refusal_channel.cpp", "system"},   // a pipe within one process
      {"proto/channel_security.cpp", "ssl"},
      {"configs/absent_flags.cpp", "system"},  // patterns of names
      {"configs/yaml/yaml_tree.cpp", "yaml-cpp"},
      {"configs/voc_folder.cpp", "xml"},
      {"worker/data/labels/voc_labels.cpp", "xml"},
      {"parallel/base/log.cpp", "spdlog"},
      {"parallel/collectives/mpi_communicator.cpp", "mpi"},
      // These three files use gRPC. tensorboard.cpp is listed because the files
      // of TensorBoard are protobuf messages.
      {"worker/control/coordinator_call.h", "grpc"},
      {"worker/control/coordinator_client.cpp", "grpc"},
      {"worker/control/report_queue.h", "grpc"},
      {"worker/run/tensorboard.cpp", "grpc"},
      // Writes the slopes of activations and the class names as JSON text.
      {"worker/export/onnx_network.cpp", "json"},
      {"worker/export/torchscript_network.cpp", "json"},
      // The files of ONNX are protobuf messages too.
      {"worker/export/onnx_graph.cpp", "grpc"},
      {"worker/export/onnx_graph.cpp", "proto/version.h"},
  };
  return all;
}

bool is_excepted(const std::string& file, const std::string& what) {
  const auto [begin, end] = exceptions().equal_range(file);
  return std::any_of(begin, end,
                     [&](const auto& entry) { return entry.second == what; });
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

bool lies_in(const std::string& path, const std::string& folder) {
  return path.starts_with(folder + "/");
}

const Rule* rule_of(const std::string& path) {
  const Rule* longest = nullptr;
  for (const Rule& rule : rules()) {
    if (!lies_in(path, rule.folder)) continue;
    if (longest == nullptr || rule.folder.size() > longest->folder.size()) {
      longest = &rule;
    }
  }
  return longest;
}

// Returns the reason why `path` must not include `include`; "" if it may.
std::string objection(const std::string& path, const Rule& rule,
                      const Include& include) {
  const std::string library = library_of(include.header);
  if (library.empty() && !include.is_quoted) {
    return "no row of include_rules.cpp knows this library";
  }
  if (!library.empty()) {
    const bool allowed = library == "std" ||
                         std::find(rule.libraries.begin(), rule.libraries.end(),
                                   library) != rule.libraries.end();
    return allowed || is_excepted(path, library)
               ? ""
               : rule.folder + " may not use " + library;
  }
  const Rule* target = rule_of(include.header);
  if (target == nullptr) return "not an include from the repository root";
  const bool allowed =
      target == &rule || std::find(rule.folders.begin(), rule.folders.end(),
                                   target->folder) != rule.folders.end();
  return allowed || is_excepted(path, include.header)
             ? ""
             : rule.folder + " may not include " + target->folder;
}

}  // namespace

std::vector<Include> includes_of(const SourceFile& file) {
  static const std::regex pattern(R"(^\s*#\s*include\s*(["<])([^">]+)[">].*)");
  std::vector<Include> includes;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    // The expression is slow, so it gets only lines that may match.
    if (file.lines[i].find("include") == std::string::npos) continue;
    std::smatch match;
    if (!std::regex_match(file.lines[i], match, pattern)) continue;
    includes.push_back({match[2], match[1] == "\"", static_cast<int>(i) + 1});
  }
  return includes;
}

std::string library_of(const std::string& header) {
  static const std::vector<std::pair<std::string, std::string>> prefixes = {
      {"ATen/", "torch"},
      {"c10/", "torch"},
      {"torch/", "torch"},
      {"caffe2/", "torch"},
      {"grpcpp/", "grpc"},
      {"grpc/", "grpc"},
      {"google/", "grpc"},
      {"spdlog/", "spdlog"},
      {"fmt/", "spdlog"},
      {"yaml-cpp/", "yaml-cpp"},
      {"CLI/", "cli"},
      {"nlohmann/", "json"},
      {"pugixml.hpp", "xml"},
      {"gloo/", "gloo"},
      {"mpi.h", "mpi"},
      {"xxhash.h", "xxhash"},
      {"immintrin.h", "vector"},
      {"absl/", "grpc"},
      {"opencv2/", "images"},
      {"jpeglib.h", "images"},
      {"jerror.h", "images"},
      {"png.h", "images"},
      {"tiffio.h", "images"},
      {"tiff.h", "images"},
      {"webp/", "images"},
      {"fontconfig/", "images"},
      {"ft2build.h", "images"},
      {"gtest/", "test"},
      {"gmock/", "test"},
      {"benchmark/", "test"},
      {"cuda", "cuda"},
      {"nccl.h", "cuda"},
      {"gdal", "gdal"},
      {"ogr", "gdal"},
      {"cpl_", "gdal"},
      {"openssl/", "ssl"},
      {"prometheus/", "prometheus"},
      {"microhttpd.h", "http"}};
  if (header.ends_with(".pb.h")) return "grpc";
  if (header == "httplib.h") return "http";
  for (const auto& [prefix, library] : prefixes) {
    if (header.starts_with(prefix)) return library;
  }
  if (header.find('.') == std::string::npos) return "std";
  static const std::set<std::string> posix = {
      "dirent.h", "dlfcn.h",  "fcntl.h",  "fnmatch.h", "glob.h",    "ifaddrs.h",
      "link.h",   "malloc.h", "netdb.h",  "poll.h",    "pthread.h", "sched.h",
      "signal.h", "spawn.h",  "stdlib.h", "unistd.h"};
  const bool is_posix =
      posix.count(header) > 0 || header.starts_with("sys/") ||
      header.starts_with("net/") || header.starts_with("netinet/") ||
      header.starts_with("arpa/") || header.starts_with("linux/");
  return is_posix ? "system" : "";
}

std::vector<std::string> forbidden_includes(
    const std::vector<SourceFile>& files) {
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    if (!is_cpp(file)) continue;
    const Rule* rule = rule_of(file.path);
    for (const Include& include : includes_of(file)) {
      const std::string place = file.path + ":" + std::to_string(include.line) +
                                ": " + include.header + ": ";
      if (lies_in(file.path, "tests")) {
        // Tests may include all rooms, except that tests of the plan may only
        // include rooms below the plan.
        if (lies_in(file.path, "tests/parallel/plan") && include.is_quoted &&
            !lies_in(include.header, "parallel/plan") &&
            !lies_in(include.header, "parallel/base") &&
            !lies_in(include.header, "tests/parallel/plan")) {
          found.push_back(place + "tests/parallel/plan may use the plan only");
        }
      } else if (rule == nullptr) {
        found.push_back(place + "no row of include_rules.cpp knows " +
                        folder_of(file.path));
      } else if (const std::string why = objection(file.path, *rule, include);
                 !why.empty()) {
        found.push_back(place + why);
      } else if (include.header == "torch/torch.h" &&
                 file.path.ends_with(".h")) {
        found.push_back(place + "never in a header: it takes seconds to read");
      }
    }
  }
  return found;
}

std::vector<std::string> circles_of_rooms(
    const std::vector<SourceFile>& files) {
  std::map<std::string, std::set<std::string>> edges;
  for (const SourceFile& file : files) {
    if (!is_cpp(file) || lies_in(file.path, "tests")) continue;
    const std::string from = folder_of(file.path);
    for (const Include& include : includes_of(file)) {
      const std::string to = folder_of(include.header);
      if (include.is_quoted && to != from) edges[from].insert(to);
    }
  }
  std::vector<std::string> circles;
  std::set<std::string> done;
  std::vector<std::string> path;
  // Searches depth first: if a room is visited again on the path, there is a
  // circle.
  const std::function<void(const std::string&)> visit =
      [&](const std::string& room) {
        const auto met = std::find(path.begin(), path.end(), room);
        if (met != path.end()) {
          std::string circle;
          for (auto i = met; i != path.end(); ++i) circle += *i + " -> ";
          circles.push_back(circle + room);
          return;
        }
        if (!done.insert(room).second) return;
        path.push_back(room);
        for (const std::string& next : edges[room]) visit(next);
        path.pop_back();
      };
  std::vector<std::string> all;
  for (const auto& [room, ignored] : edges) all.push_back(room);
  for (const std::string& room : all) visit(room);
  return circles;
}

std::vector<std::string> meetings_of_torch_and_others(
    const std::vector<SourceFile>& files) {
  std::map<std::string, std::vector<Include>> includes;
  for (const SourceFile& file : files) {
    if (is_cpp(file)) includes[file.path] = includes_of(file);
  }
  std::vector<std::string> found;
  for (const auto& [path, ignored] : includes) {
    std::set<std::string> libraries;
    std::set<std::string> seen = {path};
    std::vector<std::string> open = {path};
    while (!open.empty()) {
      const std::string current = open.back();
      open.pop_back();
      for (const Include& include : includes[current]) {
        libraries.insert(library_of(include.header));
        if (includes.count(include.header) > 0 &&
            seen.insert(include.header).second) {
          open.push_back(include.header);
        }
      }
    }
    for (const char* other : {"grpc", "spdlog"}) {
      if (libraries.count("torch") > 0 && libraries.count(other) > 0) {
        found.push_back(path + " sees both torch and " + other);
      }
    }
  }
  return found;
}

}  // namespace headroom
