// Order, shapes and the first image's labels equal those of the reference
// (rect_batches in schedules.json).
#include <gtest/gtest.h>

#include "tests/support/parity.h"
#include "tests/worker/data/made_images.h"
#include "worker/data/augment/augment.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/loader/loader_plan.h"

namespace headroom::loader {
namespace {

using nlohmann::json;

TEST(RectBatchesParity, OrderShapesAndFirstItem) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const json cases = load_parity_json("schedules.json")["rect_batches"];
  ASSERT_EQ(cases.size(), 5u);
  for (const json& c : cases) {
    std::vector<codecs::ImageSize> sizes;
    for (const json& wh : c["images_wh"]) sizes.push_back({wh[1], wh[0]});
    RectOptions options;
    options.batch_size = c["batch"];
    options.height = options.width = c["imgsz"];
    options.stride = c["stride"];
    options.pad = c["pad"];
    const RectBatches batches = make_rect_batches(sizes, options);
    EXPECT_EQ(json(batches.order), c["order_by_h_over_w"]);
    json shapes = json::array();
    for (const RectBatches::Shape& shape : batches.shapes) {
      shapes.push_back({shape.height, shape.width});
    }
    EXPECT_EQ(shapes, c["batch_hw"]);

    // The first image of the first batch, with the label .5 .5 .2 .2.
    const std::vector<labels::BoxLabel> labels{{0, 0.5f, 0.5f, 0.2f, 0.2f}};
    MadeImages images([&](int64_t sample) {
      augment::LoadedImage image;
      image.source = sizes[sample];
      const codecs::ImageSize size =
          augment::fit_size(sizes[sample], c["imgsz"], c["imgsz"]);
      image.pixels = cv::Mat::zeros(size.height, size.width, CV_8UC3);
      image.labels = labels;
      return image;
    });
    const RectBatches::Shape shape = batches.shapes[0];
    const augment::NetworkSample first = augment::make_validation_sample(
        batches.order[0], shape.height, shape.width, {0, shape.height}, images);
    const json& expected = c["first_item_shapes"];
    EXPECT_EQ(json({first.source.height, first.source.width}), expected[0]);
    EXPECT_EQ(json(first.ratio), expected[1][0][0]);
    EXPECT_EQ(json({first.pad_x, first.pad_y}), expected[1][1]);
    const json& label = c["first_item_label"][0];
    EXPECT_NEAR(first.boxes.at(0).cx, label[2].get<double>(), 1e-6);
    EXPECT_NEAR(first.boxes.at(0).cy, label[3].get<double>(), 1e-6);
    EXPECT_NEAR(first.boxes.at(0).w, label[4].get<double>(), 1e-6);
    EXPECT_NEAR(first.boxes.at(0).h, label[5].get<double>(), 1e-6);
  }
}

}  // namespace
}  // namespace headroom::loader
