#include "configs/options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <type_traits>

#include "tests/support/refusal.h"

namespace headroom::configs {
namespace {

TEST(Options, KeysAreUniqueWordsAndEachIsExplained) {
  std::set<std::string> seen;
  for (const Option& option : run_options()) {
    EXPECT_TRUE(seen.insert(option.key).second) << option.key;
    EXPECT_TRUE(std::regex_match(option.key, std::regex("(hyp\\.)?[a-z0-9_]+")))
        << option.key;
    EXPECT_TRUE(option.advice.ends_with('.')) << option.key;
    EXPECT_EQ(find_key(option.key), &option);
    EXPECT_LE(option.range.low, option.range.high) << option.key;
  }
  EXPECT_EQ(find_key("lr0"), nullptr);
}

// A member without a row in the table would get lost on its way to the workers.
// So there may be only padding between the members that have a row.
TEST(Options, EveryMemberHasARow) {
  struct Extent {
    size_t begin, size, alignment;
  };
  RunConfig config;
  const auto offset_of = [&](const auto& field) {
    return static_cast<size_t>(reinterpret_cast<const char*>(&field) -
                               reinterpret_cast<const char*>(&config));
  };
  const auto extent_of = [&](auto member) -> Extent {
    using Member = decltype(member);
    if constexpr (std::is_same_v<Member, double Hyperparameters::*> ||
                  std::is_same_v<Member, std::string Hyperparameters::*>) {
      using Field = std::decay_t<decltype(config.hyp.*member)>;
      return {offset_of(config.hyp.*member), sizeof(Field), alignof(Field)};
    } else if constexpr (!std::is_member_pointer_v<Member>) {
      ADD_FAILURE() << "bound to no member";
      return {};
    } else {
      using Field = std::decay_t<decltype(config.*member)>;
      return {offset_of(config.*member), sizeof(Field), alignof(Field)};
    }
  };
  std::vector<Extent> members;
  for (const Option& option : run_options()) {
    members.push_back(std::visit(extent_of, option.member));
  }
  // No row: the coordinator reads this from the plan of a resumed run.
  members.push_back(extent_of(&RunConfig::batch_norm_rule));
  // No row: a run measures this.
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

TEST(Options, MembersAreDistinct) {
  for (const Option& option : run_options()) {
    for (const Option& other : run_options()) {
      EXPECT_EQ(option.member == other.member, &option == &other)
          << option.key << " " << other.key;
    }
  }
}

TEST(Options, ALayoutIsReadOnceAndWrittenShortly) {
  const Option& option = *find_key("layout");
  RunConfig config;
  EXPECT_EQ(value_text(config, option), "");
  EXPECT_TRUE(set_from_text(config, option, "pipeline=2,data=3,spatial=1"));
  EXPECT_EQ(config.layout, (plan::ParallelLayout{.pipeline_parallel_size = 2,
                                                 .data_parallel_size = 3}));
  EXPECT_EQ(value_text(config, option), "data=3,pipeline=2");
  EXPECT_TRUE(set_from_text(config, option, ""));
  EXPECT_FALSE(config.layout);
  EXPECT_THROW(set_from_text(config, option, "data=2,data=2"), Error);
}

TEST(Options, DefaultsAreInRange) {
  for (const Option& option : run_options()) {
    const double value = number_of(RunConfig(), option);
    if (is_text(option)) continue;
    EXPECT_GE(value, option.range.low) << option.key;
    EXPECT_LE(value, option.range.high) << option.key;
  }
}

TEST(Options, DefaultsAsText) {
  EXPECT_EQ(default_text(*find_key("hyp.lr0")), "0.01");
  EXPECT_EQ(default_text(*find_key("cos_lr")), "false");
  EXPECT_EQ(default_text(*find_key("precision")), "auto");
  EXPECT_EQ(default_text(*find_key("global_batch_size")), "16");
  EXPECT_EQ(default_text(*find_key("data")), "");
}

TEST(Options, RefusedTextLeavesTheConfigAlone) {
  RunConfig config;
  for (const Option& option : run_options()) {
    if (is_text(option) && option.choices.empty()) continue;
    EXPECT_FALSE(set_from_text(config, option, "?")) << option.key;
  }
  EXPECT_EQ(config, RunConfig());
}

TEST(Options, ByteSizesOnlyWhereTheyAreMeant) {
  RunConfig config;
  EXPECT_TRUE(set_from_text(config, *find_key("host_memory_limit"), "1.5G"));
  EXPECT_EQ(config.host_memory_limit, int64_t{3} << 29);
  EXPECT_FALSE(set_from_text(config, *find_key("epochs"), "1k"));
}

TEST(Options, ADeclarationHasNamesAndAValue) {
  const Option img = option("--img, --imgsz HEIGHT [WIDTH]", {"val"}, "It is.");
  EXPECT_EQ(img.names, (std::vector<std::string>{"--img", "--imgsz"}));
  EXPECT_EQ(img.value_name, "HEIGHT [WIDTH]");
  EXPECT_TRUE(is_switch(option("--all", {}, "")));
  EXPECT_EQ(option("--task", {}, "", {.choices = {"a", "b"}}).value_name,
            "a|b");
  EXPECT_TRUE(option("RUN.YAML", {}, "").names.empty());
}

// A command has only one flag of a name, and the help explains each flag.
TEST(Options, OfACommandHaveDistinctNamesAndAdvice) {
  std::set<std::string> seen;
  for (const auto* options : {&run_options(), &command_options()}) {
    for (const Option& option : *options) {
      EXPECT_TRUE(option.advice.ends_with('.')) << option.advice;
      for (const std::string& command : option.commands) {
        for (const std::string& name : option.names) {
          EXPECT_TRUE(seen.insert(command + " " + name).second)
              << command << " " << name;
          EXPECT_EQ(find_option(command, name), &option);
        }
      }
    }
  }
  EXPECT_EQ(find_option("train", "--task"), nullptr);
  EXPECT_EQ(find_option("val", "--processes")->key, "processes");
  EXPECT_EQ(find_option("agent", "--processes")->key, "");
}

}  // namespace
}  // namespace headroom::configs
