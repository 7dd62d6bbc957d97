// A teacher that does not fit the student is refused, with both values. A
// teacher whose file has changed is refused too.
#include "worker/step/teacher.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "configs/layers/model_table.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"
#include "worker/weights/weights.h"

namespace headroom::step {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::unique_ptr<model::LayerGraph> network(const std::string& name,
                                           int64_t classes) {
  return std::make_unique<model::LayerGraph>(layers::load_model_table(name),
                                             classes, at::kFloat, 0);
}

TEST(Teacher, OtherClassesLevelsAndAnchorsAreRefused) {
  const auto student = network("yolov5n", 3);
  EXPECT_NO_THROW(Teacher(network("yolov5s", 3)).check(*student));
  EXPECT_THAT([&] { Teacher(network("yolov5s", 4)).check(*student); },
              ThrowsMessage<Error>(HasSubstr(
                  "the teacher knows 4 classes, the student 3 classes")));
  layers::ModelTable bands = layers::load_model_table("yolov5n");
  bands.input_channels = 5;
  const model::LayerGraph of_bands(bands, 3, at::kFloat, 0);
  EXPECT_THAT([&] { Teacher(network("yolov5s", 3)).check(of_bands); },
              ThrowsMessage<Error>(HasSubstr(
                  "the teacher looks at images of 3 bands, the student at 5: "
                  "give a teacher of the same ch")));
  EXPECT_THAT([&] { Teacher(network("yolov5n6", 3)).check(*student); },
              ThrowsMessage<Error>(HasSubstr("has 4 levels, the student 3")));
  layers::ModelTable other = layers::load_model_table("yolov5n");
  other.anchors[0][0] = {11, 13};
  EXPECT_THAT(
      [&] {
        Teacher(std::make_unique<model::LayerGraph>(other, 3, at::kFloat, 0))
            .check(*student);
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("level 0 of the teacher: stride 8"),
                                 HasSubstr("11x13"), HasSubstr("10x13"))));
}

TEST(Teacher, AFileThatHasChangedIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "teacher.safetensors";
  weights::save_weights(file, network("yolov5n", 3)->state(),
                        {{"model", "yolov5n"}});
  configs::RunConfig config;
  config.teacher = file;
  config.teacher_digest = file_digest(file);
  const devices::ComputeDevice cpu;
  const auto teacher = Teacher::open(config, cpu);
  EXPECT_NO_THROW(teacher->check(*network("yolov5n", 3)));
  config.teacher_digest = "0123";
  EXPECT_THAT([&] { Teacher::open(config, cpu); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("is not what the run began with"),
                        HasSubstr(file_digest(file)), HasSubstr("0123"))));
}

// The teacher would get other pixel values than those that it was trained on.
TEST(Teacher, AnotherRangeIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "teacher.safetensors";
  weights::save_weights(file, network("yolov5n", 3)->state(),
                        {{"model", "yolov5n"}, {"value_range", "0,4095"}});
  configs::RunConfig config;
  config.teacher = file;
  config.teacher_digest = file_digest(file);
  const devices::ComputeDevice cpu;
  config.value_range = "0,4095";
  EXPECT_NO_THROW(Teacher::open(config, cpu));
  config.value_range = "0,4095 0,4095 0,4095";
  EXPECT_NO_THROW(Teacher::open(config, cpu)) << "the same for each band";
  for (const char* other : {"", "0,65535"}) {
    config.value_range = other;
    EXPECT_THAT(
        [&] { Teacher::open(config, cpu); },
        ThrowsMessage<Error>(AllOf(
            HasSubstr("the teacher was trained with the range 0,4095, and "
                      "this run has"),
            HasSubstr("--set value_range='0,4095'"))));
  }
}

}  // namespace
}  // namespace headroom::step
