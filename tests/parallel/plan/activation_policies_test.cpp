#include "parallel/plan/plan.h"

#include <gtest/gtest.h>

namespace headroom::plan {
namespace {

using enum ActivationPolicy;

TEST(ActivationPolicies, NamesComeBack) {
  for (const auto policy : {kKeep, kLean, kRecompute, kOffload}) {
    EXPECT_EQ(parse_activation_policy(to_string(policy)), policy);
  }
  EXPECT_EQ(parse_activation_policy("auto"), std::nullopt);
  EXPECT_EQ(parse_activation_policy(""), std::nullopt);
}

TEST(ActivationPolicies, LayersOfOnePolicyAreListedTogether) {
  EXPECT_EQ(activations_text({}), "keep");
  EXPECT_EQ(activations_text({kLean, kLean, kLean}), "lean");
  EXPECT_EQ(activations_text({kRecompute, kRecompute, kKeep, kKeep, kKeep,
                              kKeep, kLean, kKeep}),
            "keep, layer 6 lean, layers 0 to 1 recompute");
  EXPECT_EQ(activations_text({kRecompute, kRecompute, kKeep, kRecompute, kKeep,
                              kLean, kKeep, kLean, kKeep, kKeep}),
            "keep, layers 5, 7 lean, layers 0 to 1, 3 recompute");
  EXPECT_EQ(activations_text({kOffload, kKeep}), "keep, layer 0 offload");
}

}  // namespace
}  // namespace headroom::plan
