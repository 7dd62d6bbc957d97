// headroom verify --data X [--strict] [--fix-to DIR] [--json]
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "configs/data_config.h"
#include "parallel/base/check.h"
#include "parallel/base/progress.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/machine/machine_limits.h"
#include "worker/data/labels/verification.h"
#include "worker/tools/tool_command.h"

namespace headroom::tools {
namespace {

struct VerifyRequest {
  std::string data;
  std::string fix_to;
  bool strict = false;
  bool all = false;
  bool json = false;
  labels::IndexOptions index;
};

// Throws Error if the copy would be inside an image folder, and thus part of
// the data set.
void require_outside_images(const std::filesystem::path& copy,
                            const configs::DataConfig& config) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path target = fs::weakly_canonical(fs::absolute(copy), ignored);
  for (const auto* split : {&config.train, &config.val, &config.test}) {
    for (const fs::path& images : *split) {
      if (!fs::is_directory(images, ignored)) continue;
      const fs::path inside =
          target.lexically_relative(fs::weakly_canonical(images, ignored));
      if (inside.empty() || *inside.begin() == "..") continue;
      throw Error("verify",
                  "--fix-to " + copy.string() + " lies in " + images.string() +
                      ", whose images the data set reads",
                  "name a folder outside it");
    }
  }
}

int verify(const VerifyRequest& request) {
  const configs::DataConfig config = configs::load_data_config(request.data);
  if (!request.fix_to.empty()) require_outside_images(request.fix_to, config);
  labels::IndexOptions index = request.index;
  index.keep_outlines = !request.fix_to.empty();
  ToolProgress progress;
  index.image_done = [&](const std::string& split, int64_t images) {
    progress.step(split, images);
  };
  const auto splits = labels::verify_data(config, index);
  progress.clear();
  std::string refusal, remedy;
  int64_t faults = 0;
  for (const labels::VerifiedSplit& split : splits) {
    faults += split.report.num_faults();
    // Published data sets often have test images without labels.
    if (refusal.empty() && split.report.split != "test") {
      refusal = split.refusal;
      remedy = split.remedy;
    }
  }
  if (!request.fix_to.empty() && refusal.empty()) {
    labels::write_corrected_copy(
        splits,
        request.index.single_cls ? std::vector<std::string>{"item"}
                                 : config.names,
        request.fix_to, configs::range_line(config.range));
  }
  if (request.json) {
    std::puts(labels::verification_json(splits).c_str());
  } else {
    std::fputs(
        printable(labels::verification_text(splits, request.all)).c_str(),
        stdout);
  }
  if (!config.test_split_error.empty()) {
    std::fprintf(stderr, "test was not verified: %s\n",
                 config.test_split_error.c_str());
  }
  if (!refusal.empty()) {
    if (faults > 0) remedy = "see the faults above";
    throw Error(
        "verify", "training on " + request.data + " is refused: " + refusal,
        request.fix_to.empty() ? remedy
                               : remedy + "; no corrected copy was written",
        ExitCode::kData);
  }
  if (request.strict && faults > 0) {
    throw Error("verify",
                request.data + " has " + counted(faults, "fault") +
                    ", which --strict does not allow",
                "correct them, or write a corrected copy with --fix-to DIR",
                ExitCode::kData);
  }
  return 0;
}

}  // namespace

int verify_command(int argc, char** argv) {
  VerifyRequest request;
  request.index.num_threads = read_machine_limits().cores;
  parse_arguments({{"--data", &request.data},
                   {"--fix-to", &request.fix_to},
                   {"--workers", &request.index.num_threads},
                   {"--strict", &request.strict},
                   {"--single-cls", &request.index.single_cls},
                   {"--all", &request.all},
                   {"--json", &request.json}},
                  argc, argv);
  return verify(request);
}

}  // namespace headroom::tools
