#include "configs/class_weights.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/refusal.h"

namespace headroom::configs {
namespace {

const std::vector<std::string> kNames = {"cat", "dog", "big bird"};

RunConfig config_of(const std::string& weights) {
  RunConfig config;
  config.hyp.cls_pw = weights;
  return config;
}

std::vector<double> weights_of(const std::string& text,
                               const std::vector<int64_t>& labels = {1, 1, 1}) {
  return weights_by_class(config_of(text), kNames, labels);
}

std::string refusal(const std::string& text) {
  return testing::refusal_of([&] { weights_of(text); });
}

using Weights = std::vector<double>;

TEST(ClassWeights, OneForAllOneForEachOrByName) {
  EXPECT_EQ(weights_of("1"), (Weights{1, 1, 1}));
  EXPECT_EQ(weights_of("0.5"), (Weights{0.5, 0.5, 0.5}));
  EXPECT_EQ(weights_of("1,2,0"), (Weights{1, 2, 0}));
  EXPECT_EQ(weights_of("big bird=4"), (Weights{1, 1, 4}));
  EXPECT_EQ(weights_of("dog=0.5,cat=3"), (Weights{3, 0.5, 1}));
}

TEST(ClassWeights, BalancedWeighsRareClassesMore) {
  EXPECT_EQ(weights_of("balanced", {60, 20, 20}),
            (Weights{100.0 / 180, 100.0 / 60, 100.0 / 60}));
  EXPECT_EQ(weights_of("balanced", {30, 0, 10}), (Weights{40.0 / 60, 1, 2}));
  EXPECT_EQ(weights_of("balanced", {0, 0, 0}), (Weights{1, 1, 1}));
}

TEST(ClassWeights, WhatDoesNotFitIsRefused) {
  const std::string how =
      ": write it as 1, as 1,2,0.5, as cat=2,dog=0.5 or as balanced";
  for (const char* text : {"x", "-1", "nan", "1,,2", "cat=", "=2", "cat=x"}) {
    EXPECT_EQ(refusal(text), "[config] hyp.cls_pw is '" + std::string(text) +
                                 "', but must be a weight of at least 0, a "
                                 "list of them, some by class name, or "
                                 "balanced" +
                                 how);
  }
  EXPECT_EQ(refusal("1,cat=2"),
            "[config] hyp.cls_pw is '1,cat=2', and has weights with and "
            "without a name, or none: name a class for each weight, or for "
            "none");
  EXPECT_EQ(refusal("1,2"),
            "[config] hyp.cls_pw is '1,2', which is 2 weights, but the data "
            "set has 3 classes: give one for each class, in the order of "
            "names");
  EXPECT_EQ(refusal("dgo=2"),
            "[config] hyp.cls_pw is 'dgo=2', but the data set has no class "
            "'dgo': did you mean 'dog'?");
  EXPECT_EQ(testing::refusal_of([] { check_run_config(config_of("many")); }),
            refusal("many"));
}

TEST(ClassWeights, AFileMayHaveAListOrAMapping) {
  const auto read = [](const std::string& yaml) {
    return parse_run_config("hyp:\n  cls_pw: " + yaml, "run.yaml").hyp.cls_pw;
  };
  EXPECT_EQ(read("0.825"), "0.825");
  EXPECT_EQ(read("[1, 2, 0.5]"), "1,2,0.5");
  EXPECT_EQ(read("{cat: 2, big bird: 0.5}"), "cat=2,big bird=0.5");
  EXPECT_EQ(read("balanced"), "balanced");
}

}  // namespace
}  // namespace headroom::configs
