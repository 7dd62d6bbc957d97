// headroom pack --data X --output DIR: writes a data set as a few large files.
#include <cstdio>
#include <string>

#include "configs/data_config.h"
#include "parallel/base/check.h"
#include "parallel/base/machine_limits.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "worker/control/stop_signals.h"
#include "worker/data/labels/packing.h"
#include "worker/tools/tool_command.h"
#include "worker/tools/tool_progress.h"

namespace headroom::tools {

int pack_command(int argc, char** argv) {
  std::string data, shard_size;
  bool json = false;
  labels::PackingRequest request;
  request.index.num_threads = std::max<int64_t>(8, read_machine_limits().cores);
  request.stopped = stop_signals::requested;
  parse_arguments({{"--data", &data},
                   {"--output", &request.output},
                   {"--pack-size", &shard_size},
                   {"--workers", &request.index.num_threads},
                   {"--json", &json}},
                  argc, argv);
  const auto bytes = parse_bytes(shard_size);
  constexpr int64_t kLeast = int64_t{1} << 20;
  if (!bytes || *bytes < kLeast) {
    throw Error("pack",
                "--pack-size " + shard_size + " is no size of 1MiB or more",
                "give one such as --pack-size 256MiB");
  }
  request.shard_bytes = static_cast<uint64_t>(*bytes);

  stop_signals::install();
  const configs::DataConfig config = configs::load_data_config(data);
  ToolProgress progress;
  request.index.image_done = [&](const std::string& split, int64_t images) {
    progress.step(split, images);
  };
  const auto splits = labels::pack_data(config, request);
  progress.clear();
  if (json) {
    std::puts(labels::packing_json(splits, request.output).c_str());
  } else {
    std::fputs(printable(labels::packing_text(splits, request.output)).c_str(),
               stdout);
  }
  if (!config.test_split_error.empty()) {
    std::fprintf(stderr, "test was not packed: %s\n",
                 config.test_split_error.c_str());
  }
  return 0;
}

}  // namespace headroom::tools
