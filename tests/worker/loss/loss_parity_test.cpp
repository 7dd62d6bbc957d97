// Values and gradients of the loss on given heads equal the reference's.
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/parity.h"
#include "tests/worker/loss/loss_cases.h"
#include "worker/kernels/box_iou.h"

namespace headroom::loss {
namespace {

void expect_relative(double actual, double expected, double tolerance,
                     const std::string& what) {
  EXPECT_NEAR(actual, expected, tolerance * std::abs(expected)) << what;
}

void expect_figures(const std::string& name, at::ScalarType scalar_type,
                    const nlohmann::json& figures, double tolerance) {
  const HeadCase head = head_case(name, scalar_type);
  const DetectionLoss loss =
      detection_loss(head.heads, head.targets, head.counts, head.gains);
  expect_relative(loss.total.item<double>(), figures["loss"], tolerance,
                  name + " loss");
  const auto items = loss.items.accessor<double, 1>();
  expect_relative(items[0], figures["box"], tolerance, name + " box");
  expect_relative(items[1], figures["obj"], tolerance, name + " obj");
  expect_relative(items[2], figures["cls"], tolerance, name + " cls");
}

TEST(LossParityTest, ValuesInBothPrecisions) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json cases = load_parity_json("loss.json")["head_cases"];
  const auto names = head_case_names();
  ASSERT_EQ(names.size(), 16u);
  for (const std::string& name : names) {
    expect_figures(name, at::kDouble, cases[name]["f64"], 1e-12);
    expect_figures(name, at::kFloat, cases[name]["f32"], 2e-6);
  }
}

TEST(LossParityTest, GradientsInBothPrecisions) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors = load_parity_tensors("loss.safetensors");
  int cases_compared = 0;
  for (const std::string& name : head_case_names()) {
    if (tensors.tensors.count(name + ".grad.0") == 0) continue;
    ++cases_compared;
    for (const auto scalar_type : {at::kDouble, at::kFloat}) {
      // The stored gradient is from the float64 run. In this case, the float64
      // run assigns boxes to other cells than the float32 run.
      if (name == "rounding" && scalar_type == at::kFloat) continue;
      const HeadCase head = head_case(name, scalar_type);
      detection_loss(head.heads, head.targets, head.counts, head.gains)
          .total.backward();
      for (size_t i = 0; i < head.heads.size(); ++i) {
        const at::Tensor expected =
            tensors.at(name + ".grad." + std::to_string(i));
        const at::Tensor actual = head.heads[i].grad().to(at::kDouble);
        if (scalar_type == at::kDouble) {
          EXPECT_TRUE(at::allclose(actual, expected, 1e-9, 1e-12))
              << name << " level " << i;
        }
        EXPECT_LT(relative_l2(actual, expected),
                  scalar_type == at::kDouble ? 1e-9 : 1e-5)
            << name << " level " << i;
      }
    }
  }
  EXPECT_EQ(cases_compared, 15);
}

// Compares the overlap of every row with its target, and the target of
// objectness. The latter is computed from the gradient, which is (sigmoid -
// target) times a factor.
TEST(LossParityTest, OverlapsAndObjectnessTargets) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors = load_parity_tensors("loss.safetensors");
  for (const std::string name : {"base", "random_labels"}) {
    const HeadCase head = head_case(name, at::kDouble);
    detection_loss(head.heads, head.targets, head.counts, head.gains)
        .total.backward();
    for (size_t i = 0; i < head.heads.size(); ++i) {
      const std::string level = "." + std::to_string(i);
      SCOPED_TRACE(name + level);
      const at::Tensor raw = head.heads[i].detach();
      const LevelTargets& targets = head.targets[i];
      const at::Tensor ciou = tensors.at(name + ".ciou" + level);
      const at::Tensor boxes = tensors.at(name + ".pbox" + level);
      ASSERT_EQ(targets.size(), ciou.size(0));
      for (int64_t row = 0; row < targets.size(); ++row) {
        const auto at = targets.index[row];
        const auto place = [&](int64_t k) { return at[k].item<int64_t>(); };
        const at::Tensor cell = raw[place(0)][place(1)][place(2)][place(3)];
        double fields[4], anchor[2], wanted[4], box[4];
        for (int64_t k = 0; k < 4; ++k) {
          fields[k] = cell[k].item<double>();
          wanted[k] = targets.box[row][k].item<double>();
          box[k] = boxes[row][k].item<double>();
          if (k < 2) anchor[k] = targets.anchors[row][k].item<double>();
        }
        EXPECT_NEAR(kernels::fit_row(fields, anchor, wanted).ciou,
                    ciou[row].item<double>(), 1e-12);
        // The box that the reference computed for the row.
        const kernels::CentreBox<double> predicted{box[0], box[1], box[2],
                                                   box[3]};
        EXPECT_NEAR(
            kernels::box_iou(kernels::IouKind::kCiou, predicted,
                             {wanted[0], wanted[1], wanted[2], wanted[3]}),
            ciou[row].item<double>(), 1e-12);
      }
      const double factor = head.gains.obj * head.gains.balance[i] *
                            static_cast<double>(head.counts.images) /
                            static_cast<double>(raw.numel() / raw.size(-1));
      const at::Tensor objectness = raw.select(-1, 4);
      const at::Tensor target =
          objectness.sigmoid() - head.heads[i].grad().select(-1, 4) / factor;
      EXPECT_TRUE(
          at::allclose(target, tensors.at(name + ".tobj" + level), 0, 1e-9));
    }
  }
}

TEST(LossParityTest, ScaledGainsAreTheReferences) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json cases = load_parity_json("loss.json")["head_cases"];
  for (const std::string& name : head_case_names()) {
    const nlohmann::json& figures = cases[name];
    const int64_t num_levels = figures["family"] == "P5" ? 3 : 4;
    const LossGains gains =
        scale_gains({}, num_levels, figures["nc"], figures["imgsz_for_gain"],
                    figures["hyp_used"]["label_smoothing"]);
    expect_relative(gains.box, figures["hyp_used"]["box"], 1e-15, name);
    expect_relative(gains.obj, figures["hyp_used"]["obj"], 1e-15, name);
    expect_relative(gains.cls, figures["hyp_used"]["cls"], 1e-15, name);
    expect_relative(gains.positive_target, figures["cls_target_pos_neg"][0],
                    1e-15, name);
    expect_relative(gains.negative_target, figures["cls_target_pos_neg"][1],
                    1e-15, name);
    for (size_t i = 0; i < gains.balance.size(); ++i)
      EXPECT_EQ(gains.balance[i], figures["balance"][i].get<double>()) << name;
  }
}

}  // namespace
}  // namespace headroom::loss
