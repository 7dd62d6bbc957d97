#include "deploy/cli/plan/plan_segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/cli/plan/plan_report.h"
#include "parallel/base/check.h"
#include "parallel/plan/layout.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;

PlanReport report_of_16_images() {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.global_batch_size = 16;
  return make_plan_report(config, 1, /*with_schedule=*/false);
}

PlanSegments segments_on(const PlanReport& report, int64_t room_bytes) {
  return segments_of(report.config, report.layers, report.plan, room_bytes);
}

TEST(PlanSegments, AreReportedBesideTheTensors) {
  PlanReport report = report_of_16_images();
  report.segments = segments_on(report, int64_t{8} << 30);
  const predict::SegmentEstimate& estimate = report.segments->estimate;
  EXPECT_EQ(estimate.tensor_bytes, report.memory[0].total());
  EXPECT_GT(estimate.segment_bytes, estimate.tensor_bytes);
  EXPECT_EQ(report.segments->room_bytes, int64_t{8} << 30);
  EXPECT_THAT(plan_report_text(report), HasSubstr("Segments of the caching"));
  EXPECT_THAT(plan_report_json(report), HasSubstr("\"segment_bytes\""));
}

TEST(PlanSegments, ThatDoNotFitAreRefusedAlthoughTheirTensorsDo) {
  const PlanReport report = report_of_16_images();
  const int64_t tensors = report.memory[0].total();
  try {
    segments_on(report, tensors);
    FAIL() << "segments are more than their tensors";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kNoPlan);
    EXPECT_THAT(error.text(), HasSubstr(std::to_string(tensors)));
    EXPECT_THAT(error.remedy(), HasSubstr("--memory-limit"));
  }
}

TEST(PlanSegments, OfAPipelineAreThoseOfTheFullestStage) {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.layout = plan::parse_layout("pipeline=2");
  const PlanReport report = make_plan_report(config, 2, false);
  const PlanSegments segments = segments_on(report, int64_t{8} << 30);
  EXPECT_EQ(segments.estimate.tensor_bytes,
            report.memory[static_cast<size_t>(segments.stage)].total());
}

}  // namespace
}  // namespace headroom::cli
