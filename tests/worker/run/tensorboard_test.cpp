#include "worker/run/tensorboard.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <opencv2/core/mat.hpp>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "worker/data/codecs/image_writer.h"

namespace headroom::run {
namespace {

namespace fs = std::filesystem;

// A generation of a run goes on in the file of the one before, which may have
// been killed in the middle of a record.
TEST(TensorboardFile, IsOneForAllGenerationsOfARun) {
  const headroom::testing::TemporaryFolder folder;
  const auto files = [&] {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      found.push_back(entry.path());
    }
    return found;
  };
  const auto write = [&](int64_t step) {
    TensorboardWriter(folder.path(), 1000.5 + static_cast<double>(step))
        .add(step, 1001, {{"x/lr0", 0.125}});
  };
  write(0);
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files().front();
  const uintmax_t one = fs::file_size(file);
  write(1);
  ASSERT_EQ(files().size(), 1u);
  const uintmax_t two = fs::file_size(file);
  const std::string whole = folder.read(file.filename().string());
  std::ofstream(file, std::ios::binary | std::ios::app)
      << whole.substr(one, (two - one) / 2);
  write(2);
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(fs::file_size(file), two + (two - one));
  EXPECT_EQ(folder.read(file.filename().string()).substr(0, two), whole);
  // A file that another program wrote, or that is damaged, is not changed.
  std::ofstream(file, std::ios::binary) << "damaged";
  write(3);
  EXPECT_EQ(files().size(), 2u);
}

class TensorboardReader : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string check = python() + " -c 'import tensorboard' 2>/dev/null";
    if (std::system(check.c_str()) != 0) {
      GTEST_SKIP() << "no tensorboard package in .deps/venv";
    }
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  static std::string python() {
    return std::string(HEADROOM_SOURCE_DIR) + "/.deps/venv/bin/python3";
  }
  // The output of `script`, in which `folder` holds the events.
  std::string printed(const std::string& script) const {
    const fs::path out = folder_.parent_path() / "tensorboard_test.txt";
    std::string command = python();
    command.append(" - > '").append(out.string()).append("' <<'PY'\n");
    command.append("folder = '").append(folder_.string()).append("'\n");
    command.append(script).append("PY\n");
    EXPECT_EQ(std::system(command.c_str()), 0);
    std::ifstream file(out);
    return {std::istreambuf_iterator<char>(file),
            std::istreambuf_iterator<char>()};
  }

  const fs::path folder_ =
      fs::path(HEADROOM_BUILD_DIR) / "tests" / "tensorboard_test";
};

// People open these files with the reader of the tensorboard package.
TEST_F(TensorboardReader, ReadsScalars) {
  {
    TensorboardWriter writer(folder_, 1000.5);
    writer.add(0, 1001, {{"metrics/mAP_0.5", 0.25}, {"x/lr0", 0.125}});
    writer.add(1, 1002, {{"metrics/mAP_0.5", 0}});
  }
  EXPECT_EQ(printed(R"(
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(folder)
events.Reload()
for tag in sorted(events.Tags()['scalars']):
    print(tag, [(e.step, e.value) for e in events.Scalars(tag)])
)"),
            "metrics/mAP_0.5 [(0, 0.25), (1, 0.0)]\nx/lr0 [(0, 0.125)]\n");
}

// TensorBoard's window for curves gets its numbers from the plugin's own code,
// which this test calls.
TEST_F(TensorboardReader, ShowsCurvesByItsPlugin) {
  {
    TensorboardWriter writer(folder_, 1000.5);
    writer.add_curve(3, 1001,
                     {.tag = "PR/all classes",
                      .true_positives = {4, 2, 1},
                      .false_positives = {4, 1, 0},
                      .false_negatives = {0, 2, 3},
                      .precision = {0.5, 0.75, 1},
                      .recall = {1, 0.5, 0.25}});
  }
  EXPECT_EQ(printed(R"(
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard import context
from tensorboard.plugins import base_plugin
from tensorboard.plugins.pr_curve import pr_curves_plugin
events = plugin_event_multiplexer.EventMultiplexer()
events.AddRun(folder, 'run')
events.Reload()
provider = data_provider.MultiplexerDataProvider(events, folder)
plugin = pr_curves_plugin.PrCurvesPlugin(base_plugin.TBContext(data_provider=provider, logdir=folder))
(curve,) = plugin.pr_curves_impl(context.RequestContext(), 'x', ['run'], 'PR/all classes')['run']
for key in ('step', 'thresholds', 'precision', 'recall', 'true_positives', 'false_positives', 'false_negatives'):
    print(key, curve[key])
)"),
            "step 3\nthresholds [0.0, 0.5, 1.0]\nprecision [0.5, 0.75, 1.0]\n"
            "recall [1.0, 0.5, 0.25]\ntrue_positives [4, 2, 1]\n"
            "false_positives [4, 1, 0]\nfalse_negatives [0, 2, 3]\n");
}

TEST_F(TensorboardReader, ShowsPicturesOfBothKinds) {
  const cv::Mat pixels(24, 40, CV_8UC3, cv::Scalar(200, 100, 50));
  {
    TensorboardWriter writer(folder_, 1000.5);
    writer.add_picture(1, 1001, "jpeg", codecs::encode_jpeg(pixels, 90));
    writer.add_picture(2, 1002, "png", codecs::encode_png_bytes(pixels));
    writer.add_picture(2, 1002, "none", "\xff\xd8\xff");
    writer.add_picture(2, 1002, "text", "no picture");
  }
  EXPECT_EQ(printed(R"(
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(folder)
events.Reload()
for tag in sorted(events.Tags()['images']):
    (image,) = events.Images(tag)
    print(tag, image.step, image.width, image.height, image.encoded_image_string[:4])
)"),
            "jpeg 1 40 24 b'\\xff\\xd8\\xff\\xe0'\npng 2 40 24 b'\\x89PNG'\n");
}

}  // namespace
}  // namespace headroom::run
