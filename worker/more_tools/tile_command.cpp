// headroom tile --data X --output DIR: cuts large images into tiles.
#include <algorithm>
#include <cstdio>
#include <string>

#include "configs/data_config.h"
#include "parallel/base/check.h"
#include "parallel/base/progress.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "parallel/machine/machine_limits.h"
#include "worker/control/stop_signals.h"
#include "worker/data/tiles/tiling.h"
#include "worker/tools/tool_command.h"

namespace headroom::tools {

int tile_command(int argc, char** argv) {
  std::string data, size;
  bool json = false;
  tiles::TilingRequest request;
  request.index.num_threads = read_machine_limits().cores;
  request.stopped = stop_signals::requested;
  parse_arguments({{"--data", &data},
                   {"--output", &request.output},
                   {"--size", &size},
                   {"--overlap", &request.tiles.overlap},
                   {"--min-visible", &request.tiles.min_visible},
                   {"--empty-share", &request.tiles.empty_share},
                   {"--workers", &request.index.num_threads},
                   {"--single-cls", &request.index.single_cls},
                   {"--json", &json}},
                  argc, argv);
  const PixelSize side = read_image_size("--size", size);
  constexpr int64_t kMaxSide = 65500;  // libjpeg's limit
  if (std::max(side.height, side.width) > kMaxSide) {
    throw Error("tile", cat("--size ", size, " is above ", kMaxSide, " pixels"),
                "give less, for example --size 640");
  }
  request.tiles.height = side.height;
  request.tiles.width = side.width;

  stop_signals::install();
  const configs::DataConfig config = configs::load_data_config(data);
  ToolProgress progress;
  request.index.image_done = [&](const std::string& split, int64_t images) {
    progress.step(split, images);
  };
  const auto splits = tiles::tile_data(config, request);
  progress.clear();
  if (json) {
    std::puts(tiles::tiling_json(splits, request.output).c_str());
  } else {
    std::fputs(printable(tiles::tiling_text(splits)).c_str(), stdout);
    std::printf("data: %s\n", (request.output / "data.yaml").c_str());
  }
  if (!config.test_split_error.empty()) {
    std::fprintf(stderr, "test was not tiled: %s\n",
                 config.test_split_error.c_str());
  }
  return 0;
}

}  // namespace headroom::tools
