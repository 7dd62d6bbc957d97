// The IoU family and its gradients equal the reference's.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/parity.h"
#include "worker/kernels/box_iou.h"

namespace headroom::loss {
namespace {

struct NamedKind {
  const char* name;
  kernels::IouKind kind;
};
constexpr NamedKind kKinds[] = {{"iou", kernels::IouKind::kIou},
                                {"giou", kernels::IouKind::kGiou},
                                {"diou", kernels::IouKind::kDiou},
                                {"ciou", kernels::IouKind::kCiou}};

// Returns the IoU of two boxes, whose coordinates are the differentiation
// inputs 0..3 and 4..7.
using Number = kernels::Dual<8>;
Number iou_of(kernels::IouKind kind, const at::Tensor& pred,
              const at::Tensor& target, int64_t i) {
  Number x[8];
  for (int64_t k = 0; k < 4; ++k) {
    x[k] = Number::input(pred[i][k].item<double>(), static_cast<size_t>(k));
    x[k + 4] =
        Number::input(target[i][k].item<double>(), static_cast<size_t>(k + 4));
  }
  return kernels::box_iou<Number>(kind, {x[0], x[1], x[2], x[3]},
                                  {x[4], x[5], x[6], x[7]});
}

void expect_like(double actual, double expected, double relative,
                 double absolute, const std::string& what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << what << ": " << actual;
  } else {
    EXPECT_NEAR(actual, expected, relative * std::abs(expected) + absolute)
        << what;
  }
}

TEST(BoxIouParityTest, ValuesAndGradientsInDouble) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors =
      load_parity_tensors("postprocess.safetensors");
  const auto names = load_parity_json("postprocess.json")["iou_names"]
                         .get<std::vector<std::string>>();
  const at::Tensor pred = tensors.at("iou.pred_xywh");
  const at::Tensor target = tensors.at("iou.target_xywh");
  ASSERT_EQ(pred.size(0), static_cast<int64_t>(names.size()));
  int gradients_compared = 0;
  for (const auto& [kind_name, kind] : kKinds) {
    const std::string prefix = std::string("iou.") + kind_name;
    const at::Tensor values = tensors.at(prefix + ".f64");
    const at::Tensor by_pred = tensors.at(prefix + ".grad_pred.f64");
    const bool has_target = kind == kernels::IouKind::kCiou;
    for (int64_t i = 0; i < pred.size(0); ++i) {
      const std::string what = prefix + " " + names[static_cast<size_t>(i)];
      const Number iou = iou_of(kind, pred, target, i);
      expect_like(iou.value, values[i].item<double>(), 1e-12, 1e-15, what);
      // The angle of a box without height has no derivative. Forward-mode
      // derivatives are then NaN in every field, the reference's only in two.
      if (by_pred[i].isnan().any().item<bool>()) continue;
      ++gradients_compared;
      for (int64_t k = 0; k < 4; ++k)
        expect_like(iou.d[static_cast<size_t>(k)], by_pred[i][k].item<double>(),
                    1e-9, 1e-12, what + " gradient " + std::to_string(k));
      for (int64_t k = 0; has_target && k < 4; ++k)
        expect_like(
            iou.d[static_cast<size_t>(k + 4)],
            tensors.at(prefix + ".grad_target.f64")[i][k].item<double>(), 1e-9,
            1e-12, what + " target gradient " + std::to_string(k));
    }
  }
  EXPECT_GE(gradients_compared, 4 * 62 - 6);
}

// Our CIoU is computed in double in every precision.
TEST(BoxIouParityTest, TheFloat32RunAgrees) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors =
      load_parity_tensors("postprocess.safetensors");
  const auto names = load_parity_json("postprocess.json")["iou_names"]
                         .get<std::vector<std::string>>();
  int compared = 0;
  for (const auto& [kind_name, kind] : kKinds) {
    const at::Tensor values =
        tensors.at(std::string("iou.") + kind_name + ".f32");
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string& name = names[i];
      // These cases exceed float32, as listed in the vectors' README.
      if (name == "tiny" || name == "very_tiny" || name.starts_with("aspect_"))
        continue;
      ++compared;
      const auto row = static_cast<int64_t>(i);
      expect_like(iou_of(kind, tensors.at("iou.pred_xywh"),
                         tensors.at("iou.target_xywh"), row)
                      .value,
                  values[row].item<double>(), 1e-6, 1e-6,
                  std::string(kind_name) + " " + name);
    }
  }
  EXPECT_GT(compared, 4 * 50);
}

TEST(BoxIouTest, FitOfARowFollowsTheRawValues) {
  // The gradient, which includes the sigmoid and the anchor, is compared with
  // central differences. Differences also include the change of CIoU's alpha,
  // which the gradient keeps constant. So the boxes have the target's aspect
  // ratio, where v is 0 and alpha has no effect.
  const double anchor[2] = {2, 3};
  const double target[4] = {0.3, 0.6, 1.6, 2.4};
  const double raw[4] = {0.2, -0.4, 0.1, 0.1};
  const kernels::RowFit fit = kernels::fit_row(raw, anchor, target);
  for (int i = 0; i < 4; ++i) {
    const double h = 1e-6;
    double low[4], high[4];
    for (int k = 0; k < 4; ++k) low[k] = high[k] = raw[k];
    low[i] -= h;
    high[i] += h;
    const double slope = (kernels::fit_row(high, anchor, target).ciou -
                          kernels::fit_row(low, anchor, target).ciou) /
                         (2 * h);
    EXPECT_NEAR(fit.gradient[i], slope, 1e-8) << i;
    EXPECT_GT(std::abs(slope), 1e-3) << i;
  }
}

}  // namespace
}  // namespace headroom::loss
