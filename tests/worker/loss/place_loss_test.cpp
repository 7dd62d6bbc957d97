// Values and gradients of the loss without anchors equal the reference's.
#include "worker/loss/place_loss.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/parity.h"

namespace headroom::loss {
namespace {

struct Case {
  std::vector<PlaceMaps> levels;
  std::vector<LabelRow> labels;
  PlaceLossRule rule;
};

// The maps by the rule of the vectors' README: class logits 2u - 1, and box
// logits whose largest bin is spread over the whole range.
at::Tensor head_of(const std::string& tag, int64_t images, int64_t height,
                   int64_t width, int64_t num_classes) {
  const int64_t fields = kBoxSides * kDistanceBins + num_classes;
  at::Tensor head =
      rule_values(tag, {images, fields, height, width}).to(at::kDouble).mul(2);
  std::string centre_tag = tag;
  centre_tag[centre_tag.rfind('/') + 1] = 'c';
  const at::Tensor centres =
      rule_values(centre_tag, {images, kBoxSides, height, width})
          .to(at::kDouble)
          .abs()
          .mul(6);
  for (int64_t side = 0; side < kBoxSides; ++side) {
    for (int64_t bin = 0; bin < kDistanceBins; ++bin) {
      const at::Tensor distance =
          centres.select(1, side).neg().add(static_cast<double>(bin));
      head.select(1, side * kDistanceBins + bin)
          .sub_(distance.square().mul(0.5));
    }
  }
  head.narrow(1, kBoxSides * kDistanceBins, num_classes).sub_(1);
  return head.to(at::kFloat);
}

Case case_of(const std::string& name, const nlohmann::json& facts,
             const weights::Safetensors& tensors, at::ScalarType type) {
  Case made;
  made.rule.num_classes = facts["num_classes"];
  made.rule.images = facts["images"].get<double>();
  made.rule.gains.box = facts["gains"]["box"];
  made.rule.gains.cls = facts["gains"]["cls"];
  made.rule.gains.dfl = facts["gains"]["dfl"];
  made.rule.places = {facts["topk"][0], facts["topk"][1]};
  const auto leaf = [type](const at::Tensor& map) {
    return map.to(type)
        .contiguous(at::MemoryFormat::ChannelsLast)
        .set_requires_grad(true);
  };
  for (size_t level = 0; level < facts["grids"].size(); ++level) {
    const nlohmann::json& grid = facts["grids"][level];
    const at::Tensor head =
        head_of(facts["tag"].get<std::string>() + "/p" + std::to_string(level),
                facts["images"], grid[0], grid[1], made.rule.num_classes);
    constexpr int64_t kBoxFields = kBoxSides * kDistanceBins;
    made.levels.push_back(
        {leaf(head.narrow(1, 0, kBoxFields)),
         leaf(head.narrow(1, kBoxFields, made.rule.num_classes)),
         facts["strides"][level]});
  }
  const auto labels = tensors.tensors.find(name + ".labels");
  if (labels == tensors.tensors.end()) return made;
  const at::Tensor rows = labels->second.to(at::kDouble).contiguous();
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const double* row = rows[i].const_data_ptr<double>();
    made.labels.push_back({static_cast<int64_t>(row[0]),
                           static_cast<int64_t>(row[1]), row[2], row[3], row[4],
                           row[5]});
  }
  return made;
}

// The cases with distance bins; the others belong to another head.
std::vector<std::string> case_names(const nlohmann::json& cases) {
  std::vector<std::string> names;
  for (const auto& [name, facts] : cases.items()) {
    if (facts.is_object() && facts.value("reg_max", 0) == kDistanceBins) {
      names.push_back(name);
    }
  }
  return names;
}

void expect_relative(double actual, double expected, double tolerance,
                     const std::string& what) {
  EXPECT_NEAR(actual, expected, tolerance * std::abs(expected)) << what;
}

void expect_figures(const std::string& name, const Case& one,
                    const nlohmann::json& figures, double tolerance) {
  const PlaceLoss loss = place_loss(one.levels, one.labels, one.rule);
  const double* items = loss.items.const_data_ptr<double>();
  const double score_sum = std::max(items[3], 1.0);
  expect_relative(loss.total.item<double>() / score_sum, figures["loss"],
                  tolerance, name + " loss");
  for (size_t i = 0; i < 3; ++i) {
    expect_relative(items[i] / score_sum, figures["items"][i], tolerance,
                    name + " item " + std::to_string(i));
  }
  expect_relative(score_sum, std::max(figures["score_sum"].get<double>(), 1.0),
                  tolerance, name + " score sum");
}

TEST(PlaceLoss, ValuesInBothPrecisions) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json cases = load_parity_json("u/loss.json");
  const auto tensors = load_parity_tensors("u/loss.safetensors");
  EXPECT_EQ(case_names(cases).size(), 9u);
  for (const std::string& name : case_names(cases)) {
    expect_figures(name, case_of(name, cases[name], tensors, at::kDouble),
                   cases[name]["f64"], 1e-12);
    expect_figures(name, case_of(name, cases[name], tensors, at::kFloat),
                   cases[name]["f32"], 2e-6);
  }
}

TEST(PlaceLoss, GradientsInBothPrecisions) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json cases = load_parity_json("u/loss.json");
  const auto tensors = load_parity_tensors("u/loss.safetensors");
  int compared = 0;
  for (const std::string& name : case_names(cases)) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
      if (tensors.tensors.count(name + ".grad.0") == 0) continue;
      const Case one = case_of(name, cases[name], tensors, type);
      const PlaceLoss loss = place_loss(one.levels, one.labels, one.rule);
      loss.total.backward();
      const double score_sum = std::max(loss.items[3].item<double>(), 1.0);
      for (size_t level = 0; level < one.levels.size(); ++level) {
        const at::Tensor expected =
            tensors.at(name + ".grad." + std::to_string(level));
        const at::Tensor actual =
            at::cat(
                {one.levels[level].box.grad(), one.levels[level].cls.grad()}, 1)
                .to(at::kDouble)
                .div(score_sum);
        // Some gradients are stored as float32.
        const bool is_exact =
            type == at::kDouble && expected.scalar_type() == at::kDouble;
        if (is_exact) {
          EXPECT_TRUE(at::allclose(actual, expected, 1e-9, 1e-12))
              << name << " level " << level;
        }
        EXPECT_LT(relative_l2(actual, expected.to(at::kDouble)),
                  is_exact ? 1e-9 : 2e-5)
            << name << " level " << level;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 2 * 3 * 5);
}

}  // namespace
}  // namespace headroom::loss
