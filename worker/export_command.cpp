// headroom export: weights as ONNX or safetensors (worker/export).
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>

#include "parallel/base/check.h"
#include "worker/export/export_weights.h"
#include "worker/tool_command.h"

namespace headroom {
namespace {

// One or two whole numbers: "640" or "480 640".
void read_image_size(const std::string& text, int64_t& height, int64_t& width) {
  std::istringstream in(text);
  std::string rest;
  const bool has_height = static_cast<bool>(in >> height);
  if (has_height && !(in >> width)) {
    in.clear();
    width = height;
  }
  if (!has_height || in >> rest || height < 1 || width < 1 || height > 65536 ||
      width > 65536) {
    throw Error("export", "--img " + text + " is no image size",
                "give pixels, for example --img 640");
  }
}

}  // namespace

int export_command(int argc, char** argv) {
  ExportRequest request;
  std::string image_size = "640", include = "onnx";
  CLI::App app("Weights as ONNX or safetensors", "headroom-worker export");
  app.add_option("--weights", request.weights)->required();
  app.add_option("--include", include);
  app.add_option("--cfg", request.cfg);
  app.add_option("--output", request.output);
  app.add_option("--img,--imgsz,--img-size", image_size);
  app.add_option("--batch,--batch-size", request.batch)
      ->check(CLI::Range(1, 65536));
  app.add_flag("--dynamic", request.dynamic);
  app.add_flag("--half", request.half);
  app.add_flag("--raw", request.raw);
  app.add_flag("--nms", request.nms);
  app.add_option("--conf-thres", request.confidence_threshold)
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--iou-thres", request.iou_threshold)
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--topk-per-class", request.most_per_class)
      ->check(CLI::Range(1, 100000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& end) {
    return app.exit(end) == 0 ? 0 : static_cast<int>(ExitCode::kRequest);
  }
  read_image_size(image_size, request.height, request.width);
  std::istringstream formats(include);
  for (std::string format; formats >> format;) {
    request.include.push_back(format);
  }
  for (const std::string& line : export_weights(request)) {
    std::puts(line.c_str());
  }
  return 0;
}

}  // namespace headroom
