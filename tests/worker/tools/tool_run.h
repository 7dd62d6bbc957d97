// Runs the commands of headroom-worker in the test's own process, on a network
// that is not trained.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "worker/model/layer_graph.h"
#include "worker/tools/tool_command.h"
#include "worker/weights/weights.h"

namespace headroom::tools {

// `words`: the command's name and its arguments. Returns the exit code.
inline int call(const ToolCommand* tool, std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return tool->run(static_cast<int>(words.size()), arguments.data());
}

struct ToolResult {
  int code = -1;
  std::string out, err;  // `err` ends with the Error, if there is one
};

inline ToolResult result_of(const ToolCommand* tool,
                            const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  ToolResult result;
  std::string refusal;
  try {
    result.code = call(tool, words);
  } catch (const Error& error) {
    result.code = static_cast<int>(error.exit_code());
    refusal = error.what();
  }
  result.out = ::testing::internal::GetCapturedStdout();
  result.err = ::testing::internal::GetCapturedStderr() + refusal;
  return result;
}

// Writes a network whose signals grow from layer to layer, so that its boxes
// depend on the pixels. With a smaller running variance they grow faster.
inline void write_weights(const std::filesystem::path& file, int num_classes,
                          int64_t side, double variance, int channels = 3) {
  layers::ModelTable table = layers::load_model_table("yolov5n");
  table.input_channels = channels;
  model::LayerGraph model(table, num_classes, at::kFloat, 0);
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.name.ends_with("running_var")) entry.tensor->fill_(variance);
  }
  auto metadata = layers::model_metadata("yolov5n", table);
  layers::describe_input(metadata, {side, side}, 32);
  weights::save_weights(file, model.state(), metadata);
}

}  // namespace headroom::tools
