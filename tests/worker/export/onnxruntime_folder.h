// A folder of exported networks, which onnxruntime (PyPI) runs.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include "parallel/base/head_fields.h"
#include "tests/support/temporary_folder.h"
#include "worker/weights/safetensors.h"

namespace headroom::exporter {

inline constexpr const char* kNoOnnxruntime =
    "onnxruntime is not installed (pip install onnxruntime)";

// The decoded boxes of a head without anchors, as they are exported: without
// objectness, and with the rows last.
inline at::Tensor as_exported(const at::Tensor& decoded) {
  return at::cat(
             {decoded.slice(2, 0, kObjectness), decoded.slice(2, kFirstClass)},
             2)
      .transpose(1, 2);
}

struct Deviation {
  std::string network, output;
  double worst = 0;  // relative to max(1, |expected|)
  double mean = 0;   // absolute
};

class OnnxruntimeFolder : public testing::TemporaryFolder {
 public:
  // Runs every NAME.onnx of the folder on the tensor "x" of `expected`, and
  // compares its outputs with the other tensors there. Returns an empty list if
  // onnxruntime is not installed.
  std::vector<Deviation> run(
      const std::vector<std::pair<std::string, at::Tensor>>& expected) const {
    namespace fs = std::filesystem;
    weights::write_safetensors(path() / "reference.safetensors", expected, {});
    const fs::path source = HEADROOM_SOURCE_DIR;
    const fs::path own = source / ".deps/venv/bin/python";
    const std::string command =
        (fs::exists(own) ? own.string() : "python3") + " " +
        (source / "tests/worker/export/run_onnx.py").string() + " " +
        path().string() + " 2>&1";
    FILE* const pipe = ::popen(command.c_str(), "r");
    std::string text;
    for (int c = ::fgetc(pipe); c != EOF; c = ::fgetc(pipe)) {
      text += static_cast<char>(c);
    }
    const int status = ::pclose(pipe);
    std::vector<Deviation> deviations;
    if (WEXITSTATUS(status) == 77) return deviations;
    EXPECT_EQ(status, 0) << text;
    std::istringstream lines(text);
    Deviation one;
    while (lines >> one.network >> one.output >> one.worst >> one.mean) {
      deviations.push_back(one);
    }
    return deviations;
  }
};

}  // namespace headroom::exporter
