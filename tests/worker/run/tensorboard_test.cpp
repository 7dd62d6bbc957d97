#include "worker/run/tensorboard.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace headroom::run {
namespace {

namespace fs = std::filesystem;

// The reader of the tensorboard package is what people open these files with.
TEST(TensorboardWriter, IsReadByTensorboard) {
  std::string python = HEADROOM_SOURCE_DIR;
  python.append("/.deps/venv/bin/python3");
  std::string check = python;
  check.append(" -c 'import tensorboard' 2>/dev/null");
  if (std::system(check.c_str()) != 0) {
    GTEST_SKIP() << "no tensorboard package in .deps/venv";
  }
  const fs::path folder =
      fs::path(HEADROOM_BUILD_DIR) / "tests" / "tensorboard_test";
  fs::remove_all(folder);
  fs::create_directories(folder);
  {
    TensorboardWriter writer(folder, 1000.5);
    writer.add(0, 1001, {{"metrics/mAP_0.5", 0.25}, {"x/lr0", 0.125}});
    writer.add(1, 1002, {{"metrics/mAP_0.5", 0.5}});
  }
  std::string script = python;
  script.append(" - '").append(folder.string()).append("' > '");
  script.append(folder.string()).append("/read.txt' 2>/dev/null <<'PY'\n");
  script.append(
      "import sys\n"
      "from tensorboard.backend.event_processing.event_accumulator import "
      "EventAccumulator\n"
      "events = EventAccumulator(sys.argv[1])\n"
      "events.Reload()\n"
      "for tag in sorted(events.Tags()['scalars']):\n"
      "    print(tag, [(e.step, e.value) for e in events.Scalars(tag)])\n"
      "PY\n");
  ASSERT_EQ(std::system(script.c_str()), 0);
  std::ifstream file(folder / "read.txt");
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  EXPECT_EQ(text,
            "metrics/mAP_0.5 [(0, 0.25), (1, 0.5)]\nx/lr0 [(0, 0.125)]\n");
}

}  // namespace
}  // namespace headroom::run
