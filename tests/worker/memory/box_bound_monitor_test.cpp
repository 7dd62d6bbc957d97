#include "worker/memory/box_bound_monitor.h"

#include <gtest/gtest.h>

#include <vector>

namespace headroom::memory {
namespace {

// Two micro-batches of two samples each; sample i has boxes[i] boxes.
loader::Batch batch_of(const std::vector<int64_t>& boxes) {
  loader::Batch batch;
  batch.local_begin = 4;
  batch.micro_batches = {{4, 6}, {6, 8}};
  for (size_t image = 0; image < boxes.size(); ++image) {
    for (int64_t box = 0; box < boxes[image]; ++box) {
      batch.labels.push_back({static_cast<int64_t>(image), 0, .5, .5, .1, .1});
    }
  }
  return batch;
}

TEST(BoxBoundMonitor, ReportsOnceThatTheBoundIsExceeded) {
  predict::LabelBound labels;
  labels.statistics =
      predict::label_statistics({3, 1, 5});  // two images: at most 8
  BoxBoundMonitor watch(labels);
  EXPECT_FALSE(watch.look_at(batch_of({5, 3, 4, 4})));
  const auto event = watch.look_at(batch_of({5, 3, 6, 4}));
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::kLabelBound);
  EXPECT_EQ(event->reason,
            "a micro-batch of 2 has 10 boxes, and the plan's bytes are for: at "
            "most 8 boxes in 2 images, from the labels of 3 images; what does "
            "not fit is tried again, leaner");
  EXPECT_EQ(event->detail_json, R"({"samples":2,"boxes":10,"bound":8})");
  EXPECT_FALSE(watch.look_at(batch_of({5, 5, 1, 1}))) << "no worse than before";
  EXPECT_TRUE(watch.look_at(batch_of({9, 2, 1, 1})));
}

}  // namespace
}  // namespace headroom::memory
