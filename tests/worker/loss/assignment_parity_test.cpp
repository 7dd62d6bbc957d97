// Cells, anchors and box targets equal the reference's, in the same order.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/parity.h"
#include "tests/worker/loss/loss_cases.h"

namespace headroom::loss {
namespace {

TEST(AssignmentParityTest, Float32MatchesIndicesAndBoxesExactly) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const weights::Safetensors tensors = load_parity_tensors("loss.safetensors");
  int levels_compared = 0;
  for (const std::string& name : head_case_names()) {
    const HeadCase head = head_case(name, at::kFloat);
    for (size_t i = 0; i < head.targets.size(); ++i) {
      const std::string level = std::to_string(i);
      const auto index = tensors.tensors.find(name + ".idx." + level);
      if (index == tensors.tensors.end()) continue;
      EXPECT_TRUE(at::equal(head.targets[i].index, index->second.to(at::kLong)))
          << name << " level " << i;
      EXPECT_TRUE(
          at::equal(head.targets[i].box, tensors.at(name + ".tbox." + level)))
          << name << " level " << i;
      ++levels_compared;
    }
  }
  EXPECT_EQ(levels_compared, 7 * 3 + 2 * 4);
}

TEST(AssignmentParityTest, CountsInBothPrecisions) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json cases = load_parity_json("loss.json")["head_cases"];
  for (const std::string& name : head_case_names()) {
    for (const bool is_double : {false, true}) {
      const HeadCase head =
          head_case(name, is_double ? at::kDouble : at::kFloat);
      const nlohmann::json& expected =
          cases[name][is_double ? "n_assigned" : "n_assigned_f32"];
      for (size_t i = 0; i < head.targets.size(); ++i)
        EXPECT_EQ(head.targets[i].size(), expected[i].get<int64_t>())
            << name << " level " << i << (is_double ? " f64" : " f32");
    }
  }
}

}  // namespace
}  // namespace headroom::loss
