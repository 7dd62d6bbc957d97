// headroom val --detections FILE --ground-truth FILE: scores a result file.
#include <cstdio>
#include <string>

#include "parallel/base/check.h"
#include "worker/tools/tool_command.h"
#include "worker/validation/detection_scores.h"

namespace headroom::tools {

int score_command(int argc, char** argv) {
  std::string detections, ground_truth;
  bool json = false;
  parse_arguments({{"--detections", &detections},
                   {"--ground-truth", &ground_truth},
                   {"--json", &json}},
                  argc, argv);
  const validation::DetectionScores scores =
      validation::score_detections(detections, ground_truth);
  if (json) {
    std::puts(validation::scores_json(scores).c_str());
  } else {
    std::fputs(validation::scores_text(scores).c_str(), stdout);
  }
  return 0;
}

}  // namespace headroom::tools
