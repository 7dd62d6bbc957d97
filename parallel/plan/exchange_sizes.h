// Sizes of what the ranks of a step exchange. The step and its forecast both
// read them here.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headroom::plan {

// Bytes of a bucket, in which gradients are summed while backward computes the
// rest. Each bucket costs the host one call and the network one latency, so
// models beyond yolov5s (29 MB of gradients) get about eight buckets of 16 to
// 32 MiB. Smaller models keep 4 MiB: their backward is short, and a larger
// bucket would start too late to be hidden by it.
constexpr int64_t bucket_bytes(int64_t gradient_bytes) {
  constexpr int64_t kMiB = 1 << 20;
  if (gradient_bytes <= 32 * kMiB) return 4 * kMiB;
  return std::clamp(gradient_bytes / 8, 16 * kMiB, 32 * kMiB);
}

// Numbers (doubles) that the ranks of a step sum at its end
// (worker/step/step_reports.h): for each rank, and once.
inline constexpr int64_t kReportsOfRank = 15;
inline constexpr int64_t kReportsOfStep = 6;
constexpr int64_t num_reports(int64_t ranks, int64_t levels) {
  return kReportsOfStep + kReportsOfRank * ranks + 1 + levels;
}

}  // namespace headroom::plan
