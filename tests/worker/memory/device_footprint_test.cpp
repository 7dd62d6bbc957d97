// Tests the device memory that a process takes besides its tensors, as it is
// computed from measurements.
#include "worker/memory/device_footprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/plan/layout.h"
#include "parallel/predict/memory_request.h"
#include "parallel/predict/time_model.h"
#include "tests/support/rank_training.h"
#include "worker/run/run_device.h"

namespace headroom::memory {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

devices::DeviceUse use(int64_t used,
                       std::optional<int64_t> own = std::nullopt) {
  return {used * kMiB,
          own ? std::optional(*own * kMiB) : std::optional<int64_t>()};
}

TEST(DeviceFootprint, OwnBytesCountForAnyUseByOthers) {
  // Meanwhile other processes free 900 MiB. Of our own 400 MiB, 50 are
  // segments.
  EXPECT_EQ(bytes_taken(use(2000, 100), use(1500, 500), 50 * kMiB), 350 * kMiB);
  // A process is not listed before it has a context.
  EXPECT_EQ(bytes_taken(use(2000), use(2400, 300), 0), 300 * kMiB);
}

TEST(DeviceFootprint, ElseTheDifferenceOfAll) {
  EXPECT_EQ(bytes_taken(use(2000), use(2400), 100 * kMiB), 300 * kMiB);
  EXPECT_EQ(bytes_taken(use(2000), use(1400), 0), 0);
  EXPECT_EQ(bytes_taken(std::nullopt, use(1400), 0), std::nullopt);
  EXPECT_EQ(bytes_taken(use(1400), std::nullopt, 0), std::nullopt);
}

TEST(DeviceFootprint, AnUnmeasuredContextIsReserved) {
  const DeviceFootprint known = footprint_of_context(use(10), use(400, 390));
  EXPECT_TRUE(known.is_measured);
  EXPECT_EQ(known.total(), 390 * kMiB);
  const DeviceFootprint unknown =
      footprint_of_context(std::nullopt, std::nullopt);
  EXPECT_FALSE(unknown.is_measured);
  EXPECT_EQ(unknown.total(), predict::kGpuContextBytes);
  EXPECT_THAT(describe({}, unknown), HasSubstr("(reserved, not measured)"));
}

TEST(DeviceRoom, IsTheLimitOrTheRestThatOthersLeave) {
  const int64_t card = 8000 * kMiB;
  const auto room = [&](int64_t limit,
                        const std::optional<devices::DeviceUse>& now,
                        int64_t held = 0) {
    return device_room(limit * kMiB, card, now, held * kMiB);
  };
  EXPECT_EQ(room(0, std::nullopt).bytes, card);
  EXPECT_EQ(room(0, use(1000, 400)).bytes, 7400 * kMiB);
  EXPECT_EQ(room(0, use(1000), 300).bytes, 7300 * kMiB);
  EXPECT_FALSE(room(0, use(1000)).is_limit);
  EXPECT_TRUE(room(6000, use(1000, 400)).is_limit);
  EXPECT_EQ(room(6000, use(1000, 400)).bytes, 6000 * kMiB);
  // A limit does not count if other processes leave less memory than the limit.
  EXPECT_EQ(room(6000, use(5000, 400)).bytes, 3400 * kMiB);
  EXPECT_FALSE(room(6000, use(5000, 400)).is_limit);
}

StepSegments segments_of(int64_t tensors, int64_t segments) {
  StepSegments result;
  result.leanest.tensor_bytes = tensors * kMiB;
  result.leanest.segment_bytes = segments * kMiB;
  return result;
}

std::string refusal(const DeviceRoom& room) {
  DeviceFootprint footprint;
  footprint.context = 300 * kMiB;
  footprint.communication = 40 * kMiB;
  footprint.libraries = 60 * kMiB;
  try {
    require_room(1, segments_of(900, 1000), footprint, room);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kNoPlan);
    return error.what();
  }
  return "";
}

TEST(DeviceRoom, APlanThatDoesNotFitIsRefusedWithAllNumbers) {
  EXPECT_EQ(refusal({1400 * kMiB, true, 8000 * kMiB}), "");
  EXPECT_EQ(refusal({1399 * kMiB, true, 8000 * kMiB}),
            "[memory] rank 1 needs 1.37 GiB (1468006400 bytes) of its device "
            "in a step however lean it is: segments of 1000 MiB for 900 MiB of "
            "tensors, 300 MiB of context, 40 MiB of communication, 60 MiB that "
            "libraries loaded when first used; but --memory-limit is 1.37 GiB "
            "(1466957824 bytes): use --memory-limit 1468006400 or more, or a "
            "smaller --batch or --img, or more --processes");
  EXPECT_THAT(refusal({1000 * kMiB, false, 8000 * kMiB}),
              AllOf(HasSubstr("1000 MiB (1048576000 bytes) of its 7.81 GiB are "
                              "left beside what others use"),
                    HasSubstr("free some of it, or use a smaller --batch")));
}

// The matches of a step are known for its planned micro-batches only; a leaner
// step has other micro-batches, and more of them.
TEST(StepSegments, KnownMatchesCountForThePlannedMicroBatchesOnly) {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.synthetic_input = true;
  config.image_height = config.image_width = 64;
  config.global_batch_size = 64;
  config.layout = plan::parse_layout("data=1");
  predict::MemoryRequest request = predict::memory_request(
      config, plan_of_synthetic_run(config),
      layers::layer_costs(layers::load_model_table(config.cfg)));
  const StepSegments bound = step_segments(request, {});
  request.step = predict::StepShape{64, 64, 64, {{9, 9, 9}}, 27};
  const StepSegments known = step_segments(request, {});
  EXPECT_LE(known.planned.tensor_bytes, bound.planned.tensor_bytes);
  EXPECT_EQ(known.leanest.segment_bytes, bound.leanest.segment_bytes);
  EXPECT_LT(known.leanest.segment_bytes, known.planned.segment_bytes);
}

TEST(DeviceMemoryEvent, IsOfTheRankThatHasLeastRoom) {
  run::DeviceMemoryLine roomy;
  roomy.room = 8000 * kMiB;
  roomy.segments = 100 * kMiB;
  run::DeviceMemoryLine full = roomy;
  full.segments = 7000 * kMiB;
  full.footprint.context = 500 * kMiB;
  EXPECT_THAT(run::device_memory_event({roomy, full}).reason,
              HasSubstr("needs up to 7.32 GiB of the 7.81 GiB"));
  EXPECT_EQ(run::fullest_rank({roomy, full}), 1);
  EXPECT_FALSE(run::any_lacks_room({roomy, full}));
  full.segments = 7600 * kMiB;
  EXPECT_TRUE(run::any_lacks_room({roomy, full}));
  EXPECT_THAT(run::device_memory_event({roomy, full}).reason,
              HasSubstr("tried again, leaner"));
}

TEST(AssignedCard, AVanishedCardIsReported) {
  const run::AssignedCard card{.index = 5, .uuid = "GPU-5"};
  EXPECT_EQ(run::vanished_card_error(card, 8, "GPU-5"), "");
  EXPECT_EQ(run::vanished_card_error(card, 5, ""),
            "card 5 (GPU-5) was there when its agent registered, and now the "
            "driver shows 5 cards");
  // A card with a lower index has disappeared, so another card has this index
  // now.
  EXPECT_EQ(run::vanished_card_error(card, 7, "GPU-6"),
            "card 5 (GPU-5) was there when its agent registered, and now the "
            "driver shows 7 cards, with GPU-6 in its place");
  EXPECT_EQ(run::vanished_card_error({.index = 0, .uuid = "MIG-1"}, 1, "GPU-9"),
            "");
  EXPECT_EQ(run::vanished_card_error({.index = 0}, 1, "GPU-9"), "");
}

}  // namespace
}  // namespace headroom::memory
