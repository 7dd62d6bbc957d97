// Which room may include which: one rule per room, and the sets of third-party
// headers that must not be included in the same file. Dependencies have one
// direction:
//
//   parallel/base <- configs, parallel/plan <- parallel/predict <- planner
//     <- worker/memory <- worker/step <- worker/checkpoint, worker/validation
//     <- worker/run <- worker/tools <- worker/main.cpp
//   parallel/planner, proto <- coordinator <- deploy/cli
#pragma once

#include <string>
#include <vector>

#include "tests/repo/source_tree.h"

namespace headroom {

struct Include {
  std::string header;  // as written in the #include
  bool is_quoted = false;
  int line = 0;
};

std::vector<Include> includes_of(const SourceFile& file);

// "torch", "grpc", "yaml-cpp", ...; "std" for the standard library, "system"
// for POSIX headers, and "" for a header that no row has.
std::string library_of(const std::string& header);

// One line per include in `files` that the rules forbid.
std::vector<std::string> forbidden_includes(
    const std::vector<SourceFile>& files);

// One line per cycle of folders that include one another: "a -> b -> a".
std::vector<std::string> circles_of_rooms(const std::vector<SourceFile>& files);

// One line per file that includes, through the project's headers or directly,
// both LibTorch and one of gRPC, protobuf and spdlog.
std::vector<std::string> meetings_of_torch_and_others(
    const std::vector<SourceFile>& files);

}  // namespace headroom
