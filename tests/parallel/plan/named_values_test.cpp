#include "parallel/plan/named_values.h"

#include <gtest/gtest.h>

#include <array>

namespace headroom {
namespace {

enum class Fruit { kApple, kPear, kNone };
constexpr auto kFruits = std::to_array<NamedValue<Fruit>>(
    {{Fruit::kPear, "pear"}, {Fruit::kApple, "apple"}});

TEST(NamedValues, NamesAndValuesAreFoundByOneAnother) {
  for (const auto& [value, name] : kFruits) {
    EXPECT_EQ(name_in(kFruits, value), name);
    EXPECT_EQ(value_in(kFruits, name), value);
  }
  EXPECT_EQ(names_in(kFruits), (std::vector<std::string>{"pear", "apple"}));
}

TEST(NamedValues, AnUnknownNameHasNoValue) {
  EXPECT_EQ(value_in(kFruits, "Pear"), std::nullopt);
  EXPECT_EQ(value_in(kFruits, ""), std::nullopt);
}

TEST(NamedValues, AValueWithoutANameIsAnError) {
  EXPECT_ANY_THROW(name_in(kFruits, Fruit::kNone));
}

}  // namespace
}  // namespace headroom
