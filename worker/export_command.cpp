// headroom export: weights as ONNX, TorchScript or safetensors (worker/export).
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>

#include "parallel/base/check.h"
#include "worker/export/export_weights.h"
#include "worker/image_size_flag.h"
#include "worker/tool_arguments.h"
#include "worker/tool_command.h"

namespace headroom {
int export_command(int argc, char** argv) {
  ExportRequest request;
  std::string image_size = "640", include = "onnx";
  CLI::App app("Weights as ONNX, TorchScript or safetensors", "export");
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
      ->check(within(0.0, 1.0));
  app.add_option("--iou-thres", request.iou_threshold)->check(within(0.0, 1.0));
  app.add_option("--topk-per-class", request.most_per_class)
      ->check(CLI::Range(1, 100000));
  parse_arguments(app, argc, argv);
  const PixelSize size = read_image_size("--img", image_size);
  request.height = size.height;
  request.width = size.width;
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
