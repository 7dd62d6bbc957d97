// A folder of exported networks, which onnxruntime (PyPI) runs.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include "tests/support/temporary_folder.h"
#include "worker/weights/safetensors.h"

namespace headroom::exporter {

inline constexpr const char* kNoOnnxruntime =
    "onnxruntime is not installed (pip install onnxruntime)";

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
