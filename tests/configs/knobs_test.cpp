#include "configs/knobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <type_traits>

#include "tests/configs/refusal.h"

namespace headroom::configs {
namespace {

TEST(Knobs, KeysAreUniqueWordsAndEachIsExplained) {
  std::set<std::string> seen;
  for (const Knob& knob : knobs()) {
    EXPECT_TRUE(seen.insert(knob.key).second) << knob.key;
    EXPECT_TRUE(std::regex_match(knob.key, std::regex("(hyp\\.)?[a-z0-9_]+")))
        << knob.key;
    EXPECT_TRUE(knob.description.ends_with('.')) << knob.key;
    EXPECT_EQ(find_knob(knob.key), &knob);
    EXPECT_LE(knob.low, knob.high) << knob.key;
  }
  EXPECT_EQ(find_knob("lr0"), nullptr);
}

// A member without a row would be lost on its way to the workers: between the
// members that have one there may be nothing but padding.
TEST(Knobs, EveryMemberHasARow) {
  struct Extent {
    size_t begin, size, alignment;
  };
  RunConfig config;
  const auto offset_of = [&](const auto& field) {
    return static_cast<size_t>(reinterpret_cast<const char*>(&field) -
                               reinterpret_cast<const char*>(&config));
  };
  const auto extent_of = [&](auto member) -> Extent {
    if constexpr (std::is_same_v<decltype(member), double Hyperparameters::*>) {
      return {offset_of(config.hyp.*member), sizeof(double), alignof(double)};
    } else {
      using Field = std::decay_t<decltype(config.*member)>;
      return {offset_of(config.*member), sizeof(Field), alignof(Field)};
    }
  };
  std::vector<Extent> members;
  for (const Knob& knob : knobs()) {
    members.push_back(std::visit(extent_of, knob.member));
  }
  // The coordinator reads it from the plan of a resumed run.
  members.push_back(extent_of(&RunConfig::batch_norm_rule));
  // A run measures it.
  members.push_back(extent_of(&RunConfig::network));
  std::sort(members.begin(), members.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  size_t end = 0;
  for (const Extent& extent : members) {
    const size_t aligned =
        (end + extent.alignment - 1) / extent.alignment * extent.alignment;
    EXPECT_EQ(extent.begin, aligned) << "no row for the member at " << aligned;
    end = extent.begin + extent.size;
  }
  EXPECT_LT(sizeof(RunConfig) - end, alignof(RunConfig));
}

TEST(Knobs, MembersAreDistinct) {
  for (const Knob& knob : knobs()) {
    for (const Knob& other : knobs()) {
      EXPECT_EQ(knob.member == other.member, &knob == &other)
          << knob.key << " " << other.key;
    }
  }
}

TEST(Knobs, ALayoutIsReadOnceAndWrittenShortly) {
  const Knob& knob = *find_knob("layout");
  RunConfig config;
  EXPECT_EQ(value_text(config, knob), "");
  EXPECT_TRUE(set_from_text(config, knob, "pipeline=2,data=3,spatial=1"));
  EXPECT_EQ(config.layout, (plan::ParallelLayout{.pipeline_parallel_size = 2,
                                                 .data_parallel_size = 3}));
  EXPECT_EQ(value_text(config, knob), "data=3,pipeline=2");
  EXPECT_TRUE(set_from_text(config, knob, ""));
  EXPECT_FALSE(config.layout);
  EXPECT_THROW(set_from_text(config, knob, "data=2,data=2"), Error);
}

TEST(Knobs, DefaultsAreInRange) {
  for (const Knob& knob : knobs()) {
    const double value = number_of(RunConfig(), knob);
    if (is_text(knob)) continue;
    EXPECT_GE(value, knob.low) << knob.key;
    EXPECT_LE(value, knob.high) << knob.key;
  }
}

TEST(Knobs, DefaultsAsText) {
  EXPECT_EQ(default_text(*find_knob("hyp.lr0")), "0.01");
  EXPECT_EQ(default_text(*find_knob("cos_lr")), "false");
  EXPECT_EQ(default_text(*find_knob("precision")), "auto");
  EXPECT_EQ(default_text(*find_knob("global_batch_size")), "16");
  EXPECT_EQ(default_text(*find_knob("data")), "");
}

TEST(Knobs, RefusedTextLeavesTheConfigAlone) {
  RunConfig config;
  for (const Knob& knob : knobs()) {
    if (is_text(knob) && knob.choices.empty()) continue;
    EXPECT_FALSE(set_from_text(config, knob, "?")) << knob.key;
  }
  EXPECT_EQ(config, RunConfig());
}

TEST(Knobs, ByteSizesOnlyWhereTheyAreMeant) {
  RunConfig config;
  EXPECT_TRUE(set_from_text(config, *find_knob("host_memory_limit"), "1.5G"));
  EXPECT_EQ(config.host_memory_limit, int64_t{3} << 29);
  EXPECT_FALSE(set_from_text(config, *find_knob("epochs"), "1k"));
}

}  // namespace
}  // namespace headroom::configs
