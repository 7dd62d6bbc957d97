#include "worker/export/export_weights.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/export/archive_mark.h"
#include "worker/export/onnx_network.h"
#include "worker/export/onnx_runner.h"
#include "worker/export/quantised_network.h"
#include "worker/export/state_dict.h"
#include "worker/export/torchscript_network.h"
#include "worker/export/value_ranges.h"
#include "worker/metrics/nms.h"
#include "worker/weights/open_weights.h"
#include "worker/weights/weights.h"
#include "worker/weights/weights_file.h"

namespace headroom::exporter {
namespace {

namespace fs = std::filesystem;

// The formats of --include; each is the suffix of its file, too.
const std::vector<std::string>& formats() {
  static const std::vector<std::string> all = {"onnx", "torchscript",
                                               "safetensors", "pt"};
  return all;
}

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error("export", what, remedy);
}

}  // namespace

// The command or program that makes another of YOLOv5's export formats, as text
// for users; "" if none is known.
std::string converter_of(const std::string& format) {
  constexpr std::array<std::array<std::string_view, 2>, 9> kConverters{
      {{"engine", "trtexec --onnx=FILE.onnx --saveEngine=FILE.engine"},
       {"openvino", "ovc FILE.onnx"},
       {"coreml", "coremltools.convert on the .torchscript file"},
       {"saved_model", "onnx2tf -i FILE.onnx"},
       {"pb", "onnx2tf -i FILE.onnx"},
       {"tflite", "onnx2tf -i FILE.onnx"},
       {"edgetpu", "onnx2tf -i FILE.onnx, then edgetpu_compiler"},
       {"tfjs", "onnx2tf -i FILE.onnx, then tensorflowjs_converter"},
       {"paddle", "x2paddle --framework=onnx --model=FILE.onnx"}}};
  for (const auto& [name, command] : kConverters) {
    if (name == format) return std::string(command) + " makes it; ";
  }
  return "";
}

void settle_formats(ExportRequest& request) {
  const fs::path output = request.output;
  const std::string suffix = output.extension().string();
  const std::string format = suffix.empty() ? "" : suffix.substr(1);
  if (std::ranges::count(formats(), format) > 0) {
    if (request.include.empty()) request.include = {format};
    if (std::ranges::count(request.include, format) == 0) {
      refuse("--output " + request.output +
                 " ends in a format that --include " + request.include.front() +
                 " does not write",
             "add " + format + " to --include, or leave the suffix out");
    }
    request.output = fs::path(output).replace_extension().string();
  }
  if (request.include.empty()) request.include = {"onnx"};
  // Suffixes of other network formats. A name may contain other dots.
  for (const char* other : {".pth", ".engine", ".tflite", ".mlmodel",
                            ".mlpackage", ".pb", ".xml"}) {
    if (suffix != other) continue;
    refuse("--output " + request.output + " ends in " + suffix +
               ", which is not written",
           "end it in ." + joined(formats(), ", .") + ", or in no suffix");
  }
  std::error_code ignored;
  if (!request.output.empty() &&
      (output.filename().empty() || fs::is_directory(output, ignored))) {
    request.output = (output / fs::path(request.weights).stem()).string();
  }
}

void check_export(const ExportRequest& request) {
  if (request.weights.empty()) {
    refuse("there are no weights to export",
           "give --weights FILE, for example "
           "runs/train/exp/weights/best.safetensors");
  }
  for (const std::string& format : request.include) {
    if (std::ranges::count(formats(), format) == 0) {
      refuse("--include " + format + " is not a format of this version",
             converter_of(format) + "use " + either_of(formats()));
    }
    if (format == "torchscript" && (request.raw || request.nms)) {
      const std::string flag = request.raw ? "--raw" : "--nms";
      refuse(flag + " is not a choice of torchscript, which decodes boxes",
             "leave it out, or use --include onnx");
    }
  }
  if (request.raw && request.nms) {
    refuse("--raw leaves decoding out, which --nms needs", "give one of them");
  }
  if (request.int8 && request.half) {
    refuse("--int8 and --half are two types for the same numbers",
           "give one of them");
  }
  if (request.int8 && request.include != std::vector<std::string>{"onnx"}) {
    refuse("--int8 is for ONNX alone", "give --include onnx");
  }
  if (request.dynamic && request.batch != 1) {
    refuse(cat("--batch ", request.batch, " fixes what --dynamic leaves open"),
           "give one of them");
  }
  if (!request.output.empty()) {
    require_folder_of(request.output, "export", "--output");
  }
}

namespace {

std::string shape_of(const OnnxValue& value) {
  std::string text = value.name + " ";
  for (size_t i = 0; i < value.dims.size(); ++i) {
    const auto* size = std::get_if<int64_t>(&value.dims[i]);
    text += (i == 0 ? "" : "x") + (size != nullptr
                                       ? std::to_string(*size)
                                       : std::get<std::string>(value.dims[i]));
  }
  return text;
}

OnnxBody in_8_bits(const ExportRequest& request, const OnnxBody& body,
                   int64_t stride) {
  ValueRanges ranges;
  OnnxRunner runner(body.graph, at::kFloat);
  request.calibration_images(stride, [&](const at::Tensor& images) {
    runner.run(images, {}, [&](const std::string& name, const at::Tensor& x) {
      ranges.see_extremes(name, x);
    });
  });
  request.calibration_images(stride, [&](const at::Tensor& images) {
    runner.run(images, {}, [&](const std::string& name, const at::Tensor& x) {
      ranges.count(name, x);
    });
  });
  return quantised(body, ranges.ranges());
}

// For example "2.05 MiB, 0.29 of float32".
std::string size_text(size_t bytes, size_t bytes_of_float) {
  std::string text = format_bytes(static_cast<int64_t>(bytes));
  if (bytes_of_float > 0) {
    const double share =
        static_cast<double>(bytes) / static_cast<double>(bytes_of_float);
    text += ", " + fixed_text(share, 2) + " of float32";
  }
  return text;
}

std::string write_onnx(const ExportRequest& request,
                       const layers::ModelTable& table,
                       model::LayerGraph& model,
                       const std::map<std::string, std::string>& metadata,
                       const fs::path& path) {
  OnnxHeadOptions options;
  options.output = request.nms   ? OnnxOutput::kDetections
                   : request.raw ? OnnxOutput::kRaw
                                 : OnnxOutput::kDecoded;
  options.is_half = request.half;
  if (request.dynamic) {
    options.batch = options.height = options.width = 0;
  } else {
    options.batch = request.batch;
    options.height = request.height;
    options.width = request.width;
  }
  options.confidence_threshold =
      static_cast<float>(request.confidence_threshold);
  options.iou_threshold = static_cast<float>(metrics::iou_threshold_of(
      request.iou_threshold, model.has_anchors(), 0.45));
  options.most_per_class = request.most_per_class;
  OnnxBody body = make_onnx_body(table, model, options, metadata);
  size_t bytes_of_float = 0;
  if (request.int8) {
    bytes_of_float = serialise_onnx(with_head(body, model, options)).size();
    body = in_8_bits(request, body, model.max_stride());
    if (request.after_int8) {
      request.after_int8(model, simulated_heads(body));
    }
  }
  const OnnxGraph graph = with_head(std::move(body), model, options);
  const std::string bytes = serialise_onnx(graph);
  write_whole_file(path, bytes);
  std::string line = path.string() + ": ONNX, opset 17, " +
                     (request.int8 ? "int8, " : "") +
                     size_text(bytes.size(), bytes_of_float) + ": " +
                     shape_of(graph.inputs.front()) + " ->";
  for (const OnnxValue& value : graph.outputs) line += " " + shape_of(value);
  return line;
}

std::string write_torchscript(
    const ExportRequest& request, const layers::ModelTable& table,
    model::LayerGraph& model,
    const std::map<std::string, std::string>& metadata, const fs::path& path) {
  const std::string bytes =
      make_torchscript_network(table, model,
                               {request.half ? at::kHalf : at::kFloat,
                                request.batch, request.height, request.width},
                               metadata);
  write_whole_file(path, bytes);
  return path.string() + ": TorchScript, " +
         format_bytes(static_cast<int64_t>(bytes.size())) +
         ": images of any size -> boxes, scores";
}

// Throws if a file with content exists that no earlier export has written.
void require_replaceable(const std::string& format, const fs::path& path) {
  const std::string remedy = "move it away, or give another --output";
  if (format == "safetensors") {
    weights::require_replaceable_weights(path, "export", remedy);
    return;
  }
  std::error_code error;
  if (!fs::exists(fs::status(path, error))) return;
  // An ONNX file begins with the name of its producer; the archives of PyTorch
  // begin with a record of this program.
  constexpr size_t kProducer = 64;
  constexpr uint64_t kBegin = 64 << 10;
  const RegularFile file(path, Links::kFollowed);
  const auto begin = file.is_open() ? file.read(0, kBegin) : std::nullopt;
  const auto is_ours = [&] {
    if (format == "onnx")
      return begin->substr(0, kProducer).find("headroom") != std::string::npos;
    return begin->starts_with("PK\3\4") &&
           begin->find(cat("/", kArchiveMark)) != std::string::npos;
  };
  if (begin && (begin->empty() || is_ours())) return;
  refuse(path.string() + " is there, and was not written by headroom export",
         remedy);
}

}  // namespace

std::vector<std::string> export_weights(const ExportRequest& request) {
  check_export(request);
  if (request.int8 && !request.calibration_images) {
    refuse("--int8 needs images to see which numbers 8 bits have to cover",
           "give the data set: --data my/data.yaml");
  }
  const weights::OpenedWeights opened =
      weights::open_weights(request.weights, request.cfg);
  model::LayerGraph& model = *opened.model;
  std::map<std::string, std::string> metadata = opened.metadata;
  fs::path stem = request.output.empty() ? fs::path(request.weights)
                                         : fs::path(request.output);
  if (request.output.empty()) stem.replace_extension();
  if (request.output.empty() && request.int8) stem += "-int8";
  std::vector<std::string> lines;
  for (const std::string& format : request.include) {
    const fs::path path = stem.string() + "." + format;
    std::error_code ignored;
    if (fs::equivalent(path, request.weights, ignored)) {
      refuse(path.string() + " is the file of weights itself",
             "give another name with --output");
    }
    require_replaceable(format, path);
    if (format == "onnx") {
      auto of_input = metadata;
      if (!request.dynamic) {
        layers::describe_input(of_input, {request.height, request.width},
                               model.max_stride());
      }
      lines.push_back(write_onnx(request, opened.table, model, of_input, path));
    } else if (format == "torchscript") {
      lines.push_back(
          write_torchscript(request, opened.table, model, metadata, path));
    } else if (format == "pt") {
      write_state_dict(path, model.state());
      lines.push_back(cat(path.string(), ": state dict of PyTorch, ",
                          model.state().size(),
                          " tensors; it names neither its model (",
                          opened.table.name, ") nor its classes"));
    } else {
      metadata["format"] = "headroom-weights";
      weights::save_weights(path, model.state(), metadata);
      lines.push_back(cat(path.string(), ": safetensors, ",
                          model.state().size(), " tensors"));
    }
  }
  return lines;
}

}  // namespace headroom::exporter
