#include "parallel/plan/activation_policies.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

using enum ActivationPolicy;

TEST(ActivationPolicies, NamesComeBack) {
  for (const auto policy : {kKeep, kLean, kRecompute, kOffload}) {
    EXPECT_EQ(parse_activation_policy(to_string(policy)), policy);
  }
  EXPECT_EQ(parse_activation_policy("auto"), std::nullopt);
  EXPECT_EQ(parse_activation_policy(""), std::nullopt);
}

TEST(ActivationPolicies, ManyRowsAreTold) {
  EXPECT_EQ(activations_text({}), "keep");
  EXPECT_EQ(activations_text({kLean, kLean, kLean}), "lean");
  EXPECT_EQ(activations_text({kRecompute, kRecompute, kKeep, kKeep, kKeep,
                              kKeep, kLean, kKeep}),
            "keep, rows 0 to 1 recompute, row 6 lean");
  EXPECT_EQ(activations_text({kOffload, kKeep}), "keep, row 0 offload");
}

}  // namespace
}  // namespace headroom
