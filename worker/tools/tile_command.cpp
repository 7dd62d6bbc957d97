// headroom tile --data X --output DIR: large images as a data set of tiles.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

#include "configs/data_config.h"
#include "parallel/base/check.h"
#include "parallel/base/utf8.h"
#include "worker/control/stop_signals.h"
#include "worker/data/tiles/tiling.h"
#include "worker/tools/tool_command.h"

namespace headroom::tools {

int tile_command(int argc, char** argv) {
  std::string data, size = "640";
  bool json = false;
  tiles::TilingRequest request;
  request.index.num_threads =
      std::max<int64_t>(1, std::thread::hardware_concurrency());
  request.stopped = stop_signals::requested;
  CLI::App app("Cuts large images and their labels into tiles", "tile");
  app.add_option("--data", data, "data.yaml or VOC folder")->required();
  app.add_option("--output", request.output, "new folder")->required();
  app.add_option("--size", size, "of a tile, in pixels");
  app.add_option("--overlap", request.tiles.overlap, "of a tile's side")
      ->check(within(0.0, 0.9));
  app.add_option("--min-visible", request.tiles.min_visible, "of a box's area")
      ->check(within(0.0, 1.0));
  app.add_option("--empty-share", request.tiles.empty_share,
                 "of the tiles without a box")
      ->check(within(0.0, 1.0));
  app.add_option("--workers", request.index.num_threads, "threads")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--single-cls", request.index.single_cls, "one class");
  app.add_flag("--json", json, "one JSON document");
  parse_arguments(app, argc, argv);
  const PixelSize side = read_image_size("--size", size);
  constexpr int64_t kMaxSide = 65500;  // libjpeg writes no longer ones
  if (std::max(side.height, side.width) > kMaxSide) {
    throw Error(
        "tile",
        "--size " + size + " is above " + std::to_string(kMaxSide) + " pixels",
        "give less, for example --size 640");
  }
  request.tiles.height = side.height;
  request.tiles.width = side.width;

  stop_signals::install();
  const configs::DataConfig config = configs::load_data_config(data);
  const auto splits = tiles::tile_data(config, request);
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
