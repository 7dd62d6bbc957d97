#include "configs/layers/model_record.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "configs/layers/model_table.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::layers {
namespace {

const std::string kModel =
    "nc: 3\n"
    "depth_multiple: 0.5\n"
    "width_multiple: 1.0\n"
    "anchors:\n"
    "  - [1,2, 3,4]\n"
    "backbone:\n"
    "  [[-1, 1, Conv, [64, 6, 2, 2]],\n"
    "   [-1, 2, C3, [64, False]]]\n"
    "head:\n"
    "  - [[1], 1, Detect, [nc, anchors]]\n";

ModelTable table(const std::string& text) {
  return parse_model_table(text, "m.yaml");
}

// The reported difference when `from` is replaced by `to`.
std::string difference(const std::string& from, const std::string& to) {
  std::string text = kModel;
  text.replace(text.find(from), from.size(), to);
  return model_difference(table(kModel), table(text));
}

TEST(ModelRecord, TheSameNetworkHasNoDifference) {
  EXPECT_EQ(difference("nc: 3", "# mine\nnc: 80"), "");
  EXPECT_EQ(difference("1.0", "1"), "");
  EXPECT_EQ(difference("[-1, 2, C3, [64, False]]",
                       "[ [-1],2,C3,[64.0,  False] ]  # deeper?\n"),
            "");
  EXPECT_EQ(
      model_difference(table(kModel), table(model_table_text(table(kModel)))),
      "");
}

TEST(ModelRecord, TheFirstDifferenceIsNamedWithBoth) {
  EXPECT_EQ(difference("[-1, 2, C3,", "[-1, 3, C3,"),
            "layer 1 was [-1, 2, C3, [64, False]] and is now [-1, 3, C3, [64, "
            "False]]");
  EXPECT_EQ(difference("[64, 6, 2, 2]", "[32, 6, 2, 2]"),
            "layer 0 was [-1, 1, Conv, [64, 6, 2, 2]] and is now [-1, 1, Conv, "
            "[32, 6, 2, 2]]");
  EXPECT_EQ(difference("  - [[1]", "  - [1, 1, SPPF, [64, 5]]\n  - [[1]"),
            "layer 2 was [1, 1, Detect, [nc, anchors]] and is now [1, 1, SPPF, "
            "[64, 5]]");
  EXPECT_EQ(difference("depth_multiple: 0.5", "depth_multiple: 0.33"),
            "depth_multiple was 0.5 and is now 0.33");
  EXPECT_EQ(difference("width_multiple: 1.0", "width_multiple: 0.25"),
            "width_multiple was 1 and is now 0.25");
  EXPECT_EQ(difference("nc: 3", "nc: 3\nch: 1"), "ch was 3 and is now 1");
  EXPECT_EQ(difference("nc: 3", "nc: 3\nchannel_multiple: 4"),
            "channel_multiple was 8 and is now 4");
  EXPECT_EQ(difference("nc: 3", "nc: 3\nactivation: nn.Mish()"),
            "activation was nn.SiLU() and is now nn.Mish()");
  EXPECT_EQ(difference("1,2, 3,4", "1,2, 3,5"),
            "anchors was 1,2 3,4 and is now 1,2 3,5");
}

TEST(ModelRecord, ALayerMoreOrLess) {
  ModelTable longer = table(kModel);
  longer.layers.push_back(longer.layers[0]);
  EXPECT_EQ(model_difference(table(kModel), longer),
            "layer 3 is new: [-1, 1, Conv, [64, 6, 2, 2]]");
  EXPECT_EQ(model_difference(longer, table(kModel)),
            "layer 3 was [-1, 1, Conv, [64, 6, 2, 2]] and is gone");
}

TEST(ModelRecord, AnotherNetworkIsRefusedAndTheRecordOffered) {
  testing::TemporaryFolder folder;
  EXPECT_FALSE(recorded_model(folder.path()));
  folder.write("model.yaml", model_table_text(table(kModel)));
  const auto recorded = recorded_model(folder.path());
  ASSERT_TRUE(recorded);
  ModelTable edited = *recorded;
  require_same_model(*recorded, edited, "my.yaml", folder.path());
  edited.depth_multiple = 1;
  const std::string run = folder.path().string();
  EXPECT_EQ(testing::refusal_of([&] {
              require_same_model(*recorded, edited, "my.yaml", folder.path());
            }),
            "[resume] my.yaml is not the model that " + run +
                " was begun with: depth_multiple was 0.5 and is now 1: go on "
                "with --cfg " +
                run + "/model.yaml, or start a new run without --resume");
  const std::filesystem::path weights =
      folder.path() / "weights/last.safetensors";
  std::filesystem::create_directories(weights.parent_path());
  std::ofstream(weights) << "weights";
  EXPECT_EQ(how_to_start_anew(folder.path()),
            "start a new run with --weights " + weights.string());
}

}  // namespace
}  // namespace headroom::layers
