#include "configs/yaml/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace headroom::yaml {
namespace {

TEST(Scalar, Booleans) {
  for (const char* word : {"true", "True", "TRUE", "yes", "on", "ON"}) {
    EXPECT_EQ(parse_bool(word), true) << word;
  }
  for (const char* word : {"false", "False", "no", "No", "off", "OFF"}) {
    EXPECT_EQ(parse_bool(word), false) << word;
  }
  for (const char* word : {"", "1", "0", "truth", "tRue", "y", " true"}) {
    EXPECT_EQ(parse_bool(word), std::nullopt) << word;
  }
}

TEST(Scalar, WholeNumbers) {
  EXPECT_EQ(parse_int64("-12"), -12);
  EXPECT_EQ(parse_int64("+12"), 12);
  EXPECT_EQ(parse_int64("9223372036854775807"),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse_uint64("18446744073709551615"),
            std::numeric_limits<uint64_t>::max());
  for (const char* word : {"", "1.0", "1e3", "0x10", "+-1", "--1", "1 ", "a",
                           "9223372036854775808"}) {
    EXPECT_EQ(parse_int64(word), std::nullopt) << word;
  }
  EXPECT_EQ(parse_uint64("-1"), std::nullopt);
}

TEST(Scalar, Numbers) {
  EXPECT_EQ(parse_double(".5"), 0.5);
  EXPECT_EQ(parse_double("+1e-3"), 1e-3);
  EXPECT_EQ(parse_double("3"), 3.0);
  for (const char* word :
       {"", "nan", "inf", "-inf", "1e999", "1,5", "1.5x", ".inf"}) {
    EXPECT_EQ(parse_double(word), std::nullopt) << word;
  }
}

TEST(Scalar, ExactTextReadsBackExactly) {
  std::mt19937_64 draw(1);
  for (int i = 0; i < 10'000; ++i) {
    const double value = std::ldexp(static_cast<double>(draw()),
                                    static_cast<int>(draw() % 200) - 100) *
                         (draw() % 2 == 0 ? 1 : -1);
    EXPECT_EQ(parse_double(exact_text(value)), value) << exact_text(value);
  }
  EXPECT_EQ(exact_text(0.1), "0.1");
}

}  // namespace
}  // namespace headroom::yaml
