// headroom detect: finds boxes in images and videos (worker/detect).
#include <ATen/Parallel.h>

#include "worker/tools/detect_run.h"
#include "worker/tools/detect_service.h"
#include "worker/tools/tool_command.h"

namespace headroom::tools {

int detect_command(int argc, char** argv) {
  DetectRequest request;
  bool no_pictures = false, no_labels = false, no_confidences = false;
  parse_arguments({{"--weights", &request.weights},
                   {"--source", &request.source},
                   {"--output", &request.output},
                   {"--exist-ok", &request.folder.may_exist},
                   {"--resume", &request.resume},
                   {"--cfg", &request.cfg},
                   {"--img", &request.image_size},
                   {"--resample", &request.resample},
                   {"--tile", &request.tile_size},
                   {"--tile-overlap", &request.overlap},
                   {"--conf-thres", &request.nms.confidence_threshold},
                   {"--iou-thres", &request.nms.iou_threshold},
                   {"--max-det", &request.nms.max_detections},
                   {"--classes", &request.classes},
                   {"--agnostic-nms", &request.nms.agnostic},
                   {"--save-txt", &request.folder.text},
                   {"--save-conf", &request.folder.confidences_in_text},
                   {"--save-csv", &request.folder.csv},
                   {"--save-json", &request.folder.json},
                   {"--save-geojson", &request.layers.geojson},
                   {"--save-gpkg", &request.layers.geopackage},
                   {"--save-crop", &request.folder.crops},
                   {"--nosave", &no_pictures},
                   {"--hide-labels", &no_labels},
                   {"--hide-conf", &no_confidences},
                   {"--line-thickness", &request.folder.annotate.line_width},
                   {"--vid-stride", &request.video_stride},
                   {"--device", &request.device},
                   {"--threads", &request.threads}},
                  argc, argv);
  request.folder.pictures = !no_pictures;
  request.folder.annotate.labels = !no_labels;
  request.folder.annotate.confidences = !no_confidences;
  at::set_num_threads(request.threads);
  request.words.assign(argv + 1, argv + argc);
  return request.source == "-" ? run_detect_service(request)
                               : run_detection(request);
}

}  // namespace headroom::tools
