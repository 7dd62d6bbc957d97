// Layout invariance: the losses and gradient norms of a run are those of one
// process, under every layout and with every way of communication. Each process
// of a split run needs less memory than a single process, which shows that the
// work really is split.
//
// Real processes, from the command line, with mosaic, warm-up, EMA and a short
// last batch. The suites named Slow run with the label `slow`.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "parallel/base/text.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

constexpr int kSteps = 20;

struct Layout {
  std::string name;
  std::string batch;
  std::string flags;
  size_t ranks;
  // Flags that change the mathematics, so the single process gets them too.
  std::string groups = "";
  // The number of compared steps. It is smaller where an epoch has few steps,
  // because rounding errors then grow faster.
  size_t steps = kSteps;
  bool outlined = false;  // labels are polygons
};

std::vector<std::string> command_of(const Layout& layout) {
  return layout.outlined ? train_fp64_on(outlined_shapes_data(), layout.batch)
                         : train_fp64(layout.batch);
}

// The run of one process, made once for all tests of a program.
const std::vector<Json>& one_process(const Layout& layout) {
  static std::map<std::string, std::vector<Json>> runs;
  std::string name = "one-" + layout.batch + layout.groups;
  std::erase(name, ' ');
  auto& run = runs[name];
  if (run.empty()) {
    const std::string flags =
        cat("--processes 1 --max-steps ", kSteps, " ", layout.groups);
    run =
        train_in(fresh_folder() / name, command_of(layout), split_words(flags));
  }
  return run;
}

void expect_equal_to_one_process(const Layout& layout,
                                 const std::vector<std::string>& launcher) {
  std::vector<Json> one = one_process(layout);
  ASSERT_EQ(one.size(), kSteps);
  one.resize(layout.steps);
  const std::vector<Json> run = train_in(
      fresh_folder() / layout.name, joined(launcher, command_of(layout)),
      split_words(cat(layout.flags, " ", layout.groups, " --max-steps ",
                      layout.steps)));
  expect_equivalent(one, run);
  const int64_t alone = measured_peaks(one).at(0);
  const std::vector<int64_t> peaks = measured_peaks(run);
  EXPECT_EQ(peaks.size(), layout.ranks);
  for (const int64_t peak : peaks) EXPECT_LT(peak, alone);
}

class Layouts : public ::testing::TestWithParam<Layout> {};

TEST_P(Layouts, EqualOneProcess) {
  expect_equal_to_one_process(GetParam(), {});
}

std::string name_of(const ::testing::TestParamInfo<Layout>& info) {
  return info.param.name;
}

constexpr const char* kGroupsOf2 = "--bn-group 2";
// The run uses a part of the images. With smoothed labels, the class weights
// count in every entry.
constexpr const char* kClassWeights =
    "--fraction 0.8 --set hyp.cls_pw=balanced --label-smoothing 0.1";
constexpr const char* kProgram =
    "--augment-program " HEADROOM_SOURCE_DIR "/tests/support/augment.sh";
constexpr const char* kYolov5nu = "--cfg yolov5nu";
constexpr const char* kYolov8n = "--cfg yolov8n";
constexpr const char* kYolov8nGroupsOf2 = "--cfg yolov8n --bn-group 2";
constexpr const char* kCopyPaste =
    "--set hyp.copy_paste=0.6 --set hyp.mixup=0.3";

// There are 37 images. With batches of 8, the last batch has 5 images; with
// batches of 16, it also has 5. With batches of 6, it has 1 image, so some
// ranks have no sample.
INSTANTIATE_TEST_SUITE_P(
    Quick, Layouts,
    ::testing::Values(
        Layout{"data3_uneven", "8", "--processes 3", 3},
        Layout{"zero3", "8", "--layout data=2 --zero 3", 2},
        Layout{"pipeline2", "8", "--layout pipeline=2 --micro-batch 2", 2,
               kGroupsOf2},
        Layout{"spatial2", "8", "--layout spatial=2", 2},
        Layout{"data2_pipeline2", "8", "--layout data=2,pipeline=2", 4,
               kGroupsOf2},
        // A batch is one group, which both ranks share; the last batch of 3 is
        // a group too.
        Layout{"uneven17_data2", "17", "--layout data=2", 2, "", 6},
        // A batch has groups of 19 and 18 images, each on its own rank.
        Layout{"uneven37_zero3", "37", "--layout data=2 --zero 3", 2, "", 5},
        // The images have 128 pixels, the windows 96.
        Layout{"data2_random_crop", "8", "--layout data=2", 2, "--random-crop"},
        Layout{"data2_multi_scale", "8", "--layout data=2", 2, "--multi-scale"},
        Layout{"data2_augment_program", "8", "--layout data=2", 2, kProgram},
        Layout{"spatial2_augment_program", "8", "--layout spatial=2", 2,
               kProgram},
        Layout{"data2_image_weights", "8", "--layout data=2", 2,
               "--image-weights --set hyp.mixup=0.3"},
        Layout{"data2_class_weights", "8", "--layout data=2", 2, kClassWeights},
        Layout{"data2_copy_paste", "8", "--layout data=2", 2, kCopyPaste,
               kSteps, true}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Slow, Layouts,
    ::testing::Values(
        Layout{"data2", "8", "--processes 2", 2},
        // An epoch has only three steps: gradient norms differ by 2e-4 in step
        // 20, with spatial ranks too.
        Layout{"data4", "16", "--layout data=4", 4, "", 15},
        Layout{"data2_short_batch_of_one", "6", "--processes 2", 2},
        // The last batch has 17 images. The two ranks have 9 and 8 of them; the
        // two groups have 10 and 7.
        Layout{"data2_group_behind_a_straddling_one", "20", "--processes 2", 2,
               "--bn-group 10", 10},
        Layout{"uneven17_data3", "17", "--layout data=3", 3, "", 6},
        Layout{"uneven17_spatial2", "17", "--layout spatial=2", 2, "", 6},
        Layout{"uneven34_data3", "34", "--layout data=3", 3, "", 5},
        Layout{"uneven34_pipeline2", "34", "--layout pipeline=2", 2, "", 5},
        Layout{"uneven37_pipeline2", "37", "--layout pipeline=2", 2, "", 5},
        Layout{"uneven37_data2_spatial2", "37", "--layout data=2,spatial=2", 4,
               "", 5},
        Layout{"data2_small_groups", "8", "--processes 2", 2, "--bn-group 4"},
        // Ranks connect only when they first exchange a message.
        Layout{"lazy_pipeline2", "8",
               "--layout pipeline=2 --micro-batch 2 --set full_mesh_ranks=1", 2,
               kGroupsOf2},
        Layout{"lazy_data2_spatial2", "8",
               "--layout data=2,spatial=2 --set full_mesh_ranks=1", 4},
        Layout{"zero1", "8", "--layout data=2 --zero 1", 2},
        Layout{"zero2", "8", "--layout data=2 --zero 2", 2},
        Layout{"pipeline3", "8", "--layout pipeline=3", 3, kGroupsOf2},
        Layout{"data2_spatial2", "8", "--layout data=2,spatial=2", 4},
        Layout{"pipeline2_spatial2", "8",
               "--layout pipeline=2,spatial=2 --micro-batch 4", 4, kGroupsOf2},
        Layout{"data2_zero3_recompute", "8",
               "--layout data=2 --zero 3 --activations recompute", 2},
        Layout{"pipeline2_zero_multi_scale", "8",
               "--layout data=2,pipeline=2 --zero 3", 4,
               "--multi-scale --bn-group 2"},
        Layout{"pipeline2_spatial2_image_weights", "8",
               "--layout pipeline=2,spatial=2 --micro-batch 4", 4,
               "--image-weights --random-crop --bn-group 2"},
        Layout{"data2_spatial2_class_weights", "8", "--layout data=2,spatial=2",
               4, kClassWeights},
        Layout{"data2_spatial2_copy_paste", "8", "--layout data=2,spatial=2", 4,
               kCopyPaste, kSteps, true},
        Layout{"micro_batches", "8", "--processes 1 --micro-batch 2", 1,
               kGroupsOf2},
        // Gradients are accumulated over several batches.
        Layout{"yolov5nu_data3_uneven", "8", "--processes 3", 3, kYolov5nu},
        Layout{"yolov8n_spatial2", "8", "--layout spatial=2", 2, kYolov8n},
        Layout{"yolov8n_data2_pipeline2_zero3", "8",
               "--layout data=2,pipeline=2 --zero 3", 4, kYolov8nGroupsOf2},
        Layout{"yolov5nu_uneven37_data2_spatial2", "37",
               "--layout data=2,spatial=2", 4, kYolov5nu, 5}),
    name_of);

class Mpirun : public ::testing::TestWithParam<Layout> {};

TEST_P(Mpirun, EqualsOneProcess) {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "mpirun is not installed";
  }
  Layout layout = GetParam();
  layout.flags += " --processes 1";
  expect_equal_to_one_process(
      layout,
      split_words(cat("mpirun -np ", layout.ranks,
                      " --oversubscribe --allow-run-as-root --bind-to none")));
}

INSTANTIATE_TEST_SUITE_P(
    Quick, Mpirun,
    ::testing::Values(Layout{"gloo_pipeline2", "8", "--layout pipeline=2", 2,
                             kGroupsOf2},
                      Layout{"mpi_data2", "8", "--backend mpi", 2}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Slow, Mpirun,
    ::testing::Values(
        Layout{"gloo_spatial2", "8", "--layout spatial=2", 2},
        Layout{"gloo_zero3", "8", "--layout data=2 --zero 3", 2},
        // Ranks that hold only a shard of the state send copies of it to their
        // buddies.
        Layout{"mpi_zero3", "8", "--backend mpi --layout data=2 --zero 3", 2},
        Layout{"mpi_data2_pipeline2", "8",
               "--backend mpi --layout data=2,pipeline=2", 4, kGroupsOf2},
        Layout{"mpi_data2_spatial2_zero3", "8",
               "--backend mpi --layout data=2,spatial=2 --zero 3", 4}),
    name_of);

}  // namespace
}  // namespace headroom::testing
