// headroom val --detections FILE --ground-truth FILE
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "parallel/base/check.h"
#include "worker/detection_scores.h"
#include "worker/tool_arguments.h"
#include "worker/tool_command.h"

namespace headroom {

int score_command(int argc, char** argv) {
  std::string detections, ground_truth;
  bool json = false;
  CLI::App app("Scores a COCO result file against COCO annotations", "val");
  app.add_option("--detections", detections, "COCO results")->required();
  app.add_option("--ground-truth", ground_truth, "COCO annotations")
      ->required();
  app.add_flag("--json", json, "one JSON document");
  parse_arguments(app, argc, argv);
  const DetectionScores scores = score_detections(detections, ground_truth);
  if (json) {
    std::puts(scores_json(scores).c_str());
  } else {
    std::fputs(scores_text(scores).c_str(), stdout);
  }
  return 0;
}

}  // namespace headroom
