// NMS and box mapping equal the reference's.
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "parallel/base/text.h"
#include "tests/support/parity.h"
#include "worker/metrics/detection.h"
#include "worker/metrics/nms.h"

namespace headroom::metrics {
namespace {

using Row = std::array<float, 6>;  // x1, y1, x2, y2, confidence, class

std::vector<Row> rows_of(const std::vector<Detection>& detections) {
  std::vector<Row> rows;
  for (const Detection& d : detections)
    rows.push_back({d.box.x1, d.box.y1, d.box.x2, d.box.y2, d.confidence,
                    static_cast<float>(d.class_index)});
  return rows;
}

std::vector<Row> rows_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  const auto row = values.accessor<float, 2>();
  std::vector<Row> rows;
  for (int64_t i = 0; i < values.size(0); ++i)
    rows.push_back(
        {row[i][0], row[i][1], row[i][2], row[i][3], row[i][4], row[i][5]});
  return rows;
}

NmsOptions options_of(const nlohmann::json& figures) {
  NmsOptions options;
  options.confidence_threshold = figures["conf_thres"];
  options.iou_threshold = figures["iou_thres"];
  options.agnostic = figures["agnostic"];
  options.multi_label = figures["multi_label"];
  options.max_detections = figures["max_det"];
  if (!figures["classes"].is_null())
    options.classes = figures["classes"].get<std::vector<int64_t>>();
  return options;
}

struct NmsVectors {
  nlohmann::json cases = load_parity_json("postprocess.json")["nms"];
  weights::Safetensors tensors = load_parity_tensors("postprocess.safetensors");

  std::vector<std::vector<Detection>> run(const std::string& name) const {
    return non_maximum_suppression(
        tensors.at("nms.in." + cases[name]["input"].get<std::string>()),
        options_of(cases[name]));
  }
  std::vector<Row> expected(const std::string& name, size_t image) const {
    return rows_of(tensors.at("nms.out." + name + "." + std::to_string(image)));
  }
};

TEST(NmsParityTest, SurvivorsInOrder) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const NmsVectors vectors;
  int compared = 0;
  for (const auto& [name, figures] : vectors.cases.items()) {
    // D_offset and E_wide are wrong in the reference (below). A case with
    // labels merges them into the predictions, which this program does not do.
    if (name == "D_offset" || name == "E_wide" || figures.contains("labels"))
      continue;
    const auto images = vectors.run(name);
    const auto kept = figures["kept"].get<std::vector<size_t>>();
    ASSERT_EQ(images.size(), kept.size()) << name;
    for (size_t i = 0; i < images.size(); ++i) {
      EXPECT_EQ(images[i].size(), kept[i]) << name << " image " << i;
      if (figures["compare"] == "exact, in order") {
        EXPECT_EQ(rows_of(images[i]), vectors.expected(name, i))
            << name << " image " << i;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 38);
}

// The reference of heads without anchors has no objectness; ours is 1.
TEST(NmsParityTest, SurvivorsOfHeadsWithoutAnchors) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json cases = load_parity_json("u/postprocess.json")["nms"];
  const weights::Safetensors tensors =
      load_parity_tensors("u/postprocess.safetensors");
  int compared = 0;
  for (const auto& [name, figures] : cases.items()) {
    // The reference rounds boxes to keep classes apart (below).
    if (name == "offset") continue;
    const at::Tensor rows =
        tensors.at("nms.in." + figures["input"].get<std::string>())
            .transpose(1, 2);
    const at::Tensor decoded =
        at::cat({rows.slice(2, 0, 4), at::ones_like(rows.slice(2, 0, 1)),
                 rows.slice(2, 4)},
                2);
    NmsOptions options;
    options.confidence_threshold = figures["conf_thres"];
    options.iou_threshold = figures["iou_thres"];
    options.multi_label = figures["multi_label"];
    options.max_detections = figures["max_det"];
    options.agnostic = figures.value("agnostic", false);
    options.classes = figures.value("classes", std::vector<int64_t>());
    const auto images = non_maximum_suppression(decoded, options);
    for (size_t i = 0; i < images.size(); ++i) {
      auto kept = rows_of(images[i]);
      auto expected = rows_of(tensors.at(cat("nms.out.", name, ".", i)));
      if (figures["compare"] == "as sets") {
        std::ranges::sort(kept);
        std::ranges::sort(expected);
      }
      EXPECT_EQ(kept, expected) << name << " image " << i;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 16);
}

// The reference separates classes by adding class * 7680 px to float32
// coordinates. This rounds the boxes of class 79, so that other boxes survive
// than in class 0 (D_offset). Beyond 7680 px, boxes of one class meet those of
// the next class (E_wide). Here each class is suppressed on its own, so that
// its number makes no difference.
TEST(NmsParityTest, HighClassesAreNotRounded) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const NmsVectors vectors;
  const auto images = vectors.run("D_offset");
  const auto class_0 = rows_of(images[0]);
  EXPECT_EQ(class_0, vectors.expected("D_offset", 0));
  auto class_79 = rows_of(images[1]);
  EXPECT_NE(class_79, vectors.expected("D_offset", 1));
  for (Row& row : class_79) {
    EXPECT_EQ(row[5], 79);
    row[5] = 0;
  }
  EXPECT_EQ(class_79, class_0);
}

TEST(NmsParityTest, WideImagesKeepClassesApart) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const NmsVectors vectors;
  const auto kept = rows_of(vectors.run("E_wide")[0]);
  EXPECT_EQ(vectors.expected("E_wide", 0).size(), 2u);
  // No two boxes of different classes overlap here, so the agnostic result is
  // the right one.
  EXPECT_EQ(kept, vectors.expected("E_wide_agnostic", 0));
}

TEST(NmsParityTest, ManyCandidatesAreCut) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json figures =
      load_parity_json("postprocess.json")["nms_big"];
  at::Tensor predictions = rule_values("nms/big", {1, 12000, 8});
  predictions.slice(2, 0, 2).mul_(2048).add_(2048);
  predictions.slice(2, 2, 4).mul_(16).add_(24);
  predictions.slice(2, 4, 8).mul_(.25).add_(.75);
  NmsOptions options;
  options.confidence_threshold = figures["settings"]["conf_thres"];
  options.iou_threshold = figures["settings"]["iou_thres"];
  options.max_detections = figures["settings"]["max_det"];
  const auto kept = non_maximum_suppression(predictions, options)[0];

  EXPECT_EQ(kept.size(), figures["kept"].get<size_t>());
  EXPECT_EQ(kept.back().confidence, figures["min_conf_kept"].get<float>());
  std::vector<int64_t> per_class(3);
  double confidences = 0, coordinates = 0;
  for (const Detection& d : kept) {
    ++per_class[static_cast<size_t>(d.class_index)];
    confidences += d.confidence;
    for (const float x : {d.box.x1, d.box.y1, d.box.x2, d.box.y2})
      coordinates += x;
  }
  EXPECT_EQ(per_class, figures["per_class"].get<std::vector<int64_t>>());
  EXPECT_NEAR(confidences, figures["sum_conf"].get<double>(), 1e-6);
  EXPECT_NEAR(coordinates, figures["sum_xyxy"].get<double>(), 1e-3);

  // Rows with equal scores may have any order.
  const weights::Safetensors tensors =
      load_parity_tensors("postprocess.safetensors");
  const auto in_any_order = [](std::vector<Row> rows) {
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return a[4] != b[4] ? a[4] > b[4] : a < b;
    });
    return rows;
  };
  const auto rows = rows_of(kept);
  EXPECT_EQ(in_any_order({rows.begin(), rows.begin() + 2000}),
            in_any_order(rows_of(tensors.at("nms.big.out_first2000"))));
  EXPECT_EQ(in_any_order({rows.end() - 500, rows.end()}),
            in_any_order(rows_of(tensors.at("nms.big.out_last500"))));
}

TEST(BoxMappingParityTest, SourcePixels) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json cases =
      load_parity_json("postprocess.json")["scale_boxes"];
  ASSERT_EQ(cases.size(), 5u);
  for (const nlohmann::json& figures : cases) {
    SourceMapping mapping;
    mapping.height = figures["to_hw"][0];
    mapping.width = figures["to_hw"][1];
    if (figures["ratio_pad"].is_null()) {
      // The image is centred: it is scaled by the smaller side ratio, and half
      // of the rest is on each side.
      const double height = figures["from_hw"][0],
                   width = figures["from_hw"][1];
      const auto source_height = static_cast<double>(mapping.height);
      const auto source_width = static_cast<double>(mapping.width);
      mapping.ratio = std::min(height / source_height, width / source_width);
      mapping.pad_x = (width - source_width * mapping.ratio) / 2;
      mapping.pad_y = (height - source_height * mapping.ratio) / 2;
    } else {
      mapping.ratio = figures["ratio_pad"][0][0];
      mapping.pad_x = figures["ratio_pad"][1][0];
      mapping.pad_y = figures["ratio_pad"][1][1];
    }
    for (size_t i = 0; i < figures["boxes_in"].size(); ++i) {
      const auto in = figures["boxes_in"][i].get<std::array<float, 4>>();
      const auto out = figures["boxes_out"][i].get<std::array<float, 4>>();
      const Corners box =
          clipped(to_source({in[0], in[1], in[2], in[3]}, mapping), mapping);
      EXPECT_EQ((std::array<float, 4>{box.x1, box.y1, box.x2, box.y2}), out)
          << figures["to_hw"].dump() << " box " << i;
    }
  }
}

TEST(BoxMappingParityTest, PairwiseIou) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors =
      load_parity_tensors("postprocess.safetensors");
  const auto to_corners = [](const at::Tensor& row) {
    const auto value = [&row](int64_t i) { return row[i].item<float>(); };
    const float half_w = value(2) / 2, half_h = value(3) / 2;
    return Corners{value(0) - half_w, value(1) - half_h, value(0) + half_w,
                   value(1) + half_h};
  };
  const at::Tensor expected = tensors.at("iou.pairwise");
  for (int64_t i = 0; i < expected.size(0); ++i)
    for (int64_t j = 0; j < expected.size(1); ++j)
      EXPECT_EQ(corner_iou(to_corners(tensors.at("iou.pred_xywh")[i]),
                           to_corners(tensors.at("iou.target_xywh")[j]), 1e-7f),
                expected[i][j].item<float>())
          << i << " " << j;
}

}  // namespace
}  // namespace headroom::metrics
