#include "tests/repo/include_rules.h"

#include <algorithm>
#include <regex>
#include <set>

namespace headroom {
namespace {

struct Rule {
  std::string folder;                  // the longest that matches counts
  std::vector<std::string> folders;    // that it may include, beside itself
  std::vector<std::string> libraries;  // beside std
};

const std::vector<std::string> kDetectorParts = {
    "configs",     "parallel/base",  "worker/model", "worker/loss",
    "worker/data", "worker/metrics", "worker/optim", "worker/pytorch_file"};

std::vector<std::string> with(std::vector<std::string> folders,
                              const std::vector<std::string>& more) {
  folders.insert(folders.end(), more.begin(), more.end());
  return folders;
}

const std::vector<Rule>& rules() {
  static const std::vector<std::string> mechanisms = {
      "parallel/base", "parallel/plan", "parallel/collectives"};
  static const std::vector<Rule> all = {
      {"configs", {"parallel/base"}, {}},
      {"configs/memory", {"configs", "parallel/base", "parallel/plan"}, {}},
      {"parallel", {}, {"torch"}},  // the precompiled header
      {"parallel/base", {}, {}},
      {"parallel/plan", {"parallel/base"}, {}},
      {"parallel/collectives",
       {"parallel/base", "parallel/plan"},
       {"torch", "gloo", "system"}},
      {"parallel/data_parallel", mechanisms, {"torch"}},
      {"parallel/spatial", mechanisms, {"torch"}},
      {"parallel/activations", mechanisms, {"torch", "system"}},
      {"parallel/pipeline", mechanisms, {"torch"}},
      // No LibTorch: launchers ask too.
      {"parallel/nvml", {"parallel/base"}, {"system"}},
      {"parallel/devices",
       with(mechanisms, {"parallel/activations"}),
       {"torch", "system"}},
      // The plugin: everything of CUDA, and nothing that needs it.
      {"parallel/cuda",
       with(mechanisms,
            {"parallel/activations", "parallel/devices", "parallel/nvml"}),
       {"torch", "cuda", "system"}},
      {"parallel/zero", mechanisms, {"torch"}},
      {"proto", {"parallel/base", "parallel/plan"}, {"grpc", "json"}},
      {"worker/model",
       kDetectorParts,
       {"torch", "json", "xxhash", "system", "vector"}},
      // PyTorch's files without LibTorch.
      {"worker/pytorch_file", {"parallel/base"}, {}},
      {"worker/export", kDetectorParts, {"torch"}},
      {"worker/detect",
       with(kDetectorParts, {"worker/chart", "worker/video"}),
       {"torch", "images", "json", "system"}},
      // The plugin and its interface: everything of FFmpeg, and nothing that
      // needs it.
      {"worker/video", {}, {"ffmpeg", "system"}},
      {"worker/loss", kDetectorParts, {"torch"}},
      {"worker/pictures",
       with(kDetectorParts, {"worker/chart", "worker/detect"}),
       {"images"}},
      // Tiles are written by the writers of pictures, which know nothing of
      // data.
      {"worker/data",
       with(kDetectorParts, {"worker/chart"}),
       {"torch", "images", "json", "xxhash", "system", "vector"}},
      {"worker/chart", {"parallel/base"}, {"images"}},
      {"worker/anchors", {"configs", "parallel/base", "worker/data"}, {}},
      {"worker/metrics", kDetectorParts, {"torch"}},
      {"worker/optim", kDetectorParts, {"torch"}},
      {"worker",
       with(kDetectorParts,
            {"parallel/plan", "parallel/collectives", "parallel/data_parallel",
             "parallel/spatial", "parallel/pipeline", "parallel/zero",
             "parallel/activations", "parallel/devices", "proto",
             "worker/anchors", "worker/chart", "worker/detect", "worker/export",
             "worker/pictures", "worker/video", "configs/memory"}),
       {"torch", "json", "xxhash", "system", "cli"}},
      {"coordinator",
       {"configs", "configs/memory", "parallel/base", "parallel/plan", "proto",
        "worker/pytorch_file"},
       {"grpc", "json", "xxhash", "system"}},
      {"deploy/launch",
       {"configs", "configs/memory", "parallel/base", "parallel/plan",
        "parallel/nvml", "proto", "coordinator"},
       {"grpc", "json", "system", "cli"}},
      {"deploy/local",
       {"parallel/base", "worker/chart"},
       {"images", "system", "cli"}},
  };
  return all;
}

// What one file may do beyond its folder's row, and why.
const std::multimap<std::string, std::string>& exceptions() {
  static const std::multimap<std::string, std::string> all = {
      // Pure: the drawing that headroom plan shows.
      {"deploy/launch/plan_report.cpp", "parallel/pipeline/schedule.h"},
      // Pure: which samples a step should have used.
      {"deploy/launch/ledger.cpp", "worker/data/sampler.h"},
      {"deploy/launch/ledger.cpp", "worker/data/weighted_sampler.h"},
      {"coordinator/certificates.cpp", "ssl"},
      {"proto/channel_security.cpp", "system"},  // who may read a key
      {"coordinator/metrics.cpp", "prometheus"},
      {"configs/yaml_tree.cpp", "yaml-cpp"},
      {"configs/voc_folder.cpp", "xml"},
      {"worker/data/voc_labels.cpp", "xml"},
      // Which samples of a batch are whose: pure, and the sampler's subject.
      {"worker/data/batch.h", "parallel/plan/batch_split.h"},
      {"worker/data/loader_options.h", "parallel/plan/batch_split.h"},
      {"worker/data/sampler.h", "parallel/plan/batch_split.h"},
      {"worker/data/synthetic.cpp", "parallel/plan/batch_split.h"},
      {"parallel/base/log.cpp", "spdlog"},
      {"parallel/collectives/mpi_communicator.cpp", "mpi"},
      // gRPC ends here; TensorBoard's files are protobuf messages.
      {"worker/coordinator_call.h", "grpc"},
      {"worker/coordinator_client.cpp", "grpc"},
      {"worker/rendezvous_client.h", "grpc"},
      {"worker/report_queue.h", "grpc"},
      {"worker/tensorboard.cpp", "grpc"},
      // Slopes and class names, as text.
      {"worker/export/torchscript_network.cpp", "json"},
      // ONNX's files are protobuf messages too.
      {"worker/export/onnx_file.cpp", "grpc"},
      {"worker/export/onnx_file.cpp", "proto/version.h"},
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

// Why `include` must not stand in `path`; "" when it may.
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
    // The expression is slow: only lines that can match reach it.
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
      {"opencv2/", "images"},
      {"jpeglib.h", "images"},
      {"jerror.h", "images"},
      {"png.h", "images"},
      {"tiffio.h", "images"},
      {"tiff.h", "images"},
      {"webp/", "images"},
      {"gtest/", "test"},
      {"gmock/", "test"},
      {"benchmark/", "test"},
      {"cuda", "cuda"},
      {"nccl.h", "cuda"},
      {"libav", "ffmpeg"},
      {"libswscale/", "ffmpeg"},
      {"openssl/", "ssl"},
      {"prometheus/", "prometheus"}};
  if (header.ends_with(".pb.h")) return "grpc";
  for (const auto& [prefix, library] : prefixes) {
    if (header.starts_with(prefix)) return library;
  }
  if (header.find('.') == std::string::npos) return "std";
  static const std::set<std::string> posix = {
      "dirent.h", "dlfcn.h",  "fcntl.h", "glob.h",    "ifaddrs.h",
      "malloc.h", "netdb.h",  "poll.h",  "pthread.h", "sched.h",
      "signal.h", "stdlib.h", "unistd.h"};
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
    // Stand-ins for Gloo's headers, which the wheel lacks, mirror its folders.
    if (lies_in(file.path, "parallel/collectives/gloo_stubs")) continue;
    const Rule* rule = rule_of(file.path);
    for (const Include& include : includes_of(file)) {
      const std::string place = file.path + ":" + std::to_string(include.line) +
                                ": " + include.header + ": ";
      if (lies_in(file.path, "tests")) {
        // Tests may include all, but those of the plan stay on its level.
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
