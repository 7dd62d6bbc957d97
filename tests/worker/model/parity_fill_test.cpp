// Tests the deterministic fill that all parity tests rely on.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "tests/support/parity.h"

namespace headroom::model {
namespace {

TEST(ParityFill, HashAndValuesAreThoseOfTheRule) {
  EXPECT_EQ(fnv1a64(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a64("a"), 0xaf63dc4c8601ec8cu);
  const uint64_t hash = fnv1a64("model.0.conv.weight");
  EXPECT_EQ(hash, 0xed98a512276e3fdeu);
  EXPECT_EQ(rule_bits(hash, 0), 0x256ea1726ce24354u);
  EXPECT_EQ(rule_bits(hash, 1), 0x41b03015f4f0213au);
  EXPECT_EQ(rule_bits(hash, 2), 0x0da4ebc408084717u);
  const at::Tensor u = rule_values("model.0.conv.weight", {4});
  EXPECT_EQ(u[0].item<double>(), -0.7075613737106323);
  EXPECT_EQ(u[1].item<double>(), -0.48681068420410156);
  EXPECT_EQ(u[2].item<double>(), -0.8934046030044556);
  EXPECT_EQ(u[3].item<double>(), -0.47126317024230957);
}

TEST(ParityFill, ImagesAreThoseOfTheRule) {
  const at::Tensor a = rule_image("A", 2, 128, 160);
  const uint8_t* pixels = a.data_ptr<uint8_t>();
  const uint8_t first[] = {213, 178, 231, 178, 210, 178, 222, 171};
  EXPECT_EQ(std::memcmp(pixels, first, 8), 0);
  const uint8_t last[] = {178, 220, 179, 184, 189, 210, 190, 186};
  EXPECT_EQ(std::memcmp(pixels + a.numel() - 8, last, 8), 0);
  EXPECT_EQ(a.sum().item<int64_t>(), 15888695);
  EXPECT_EQ(rule_image("T0", 4, 128, 128).sum().item<int64_t>(), 25705410);
  EXPECT_EQ(rule_image("F", 2, 64, 64).sum().item<int64_t>(), 3038166);
  EXPECT_EQ(rule_image("L1", 1, 67, 41).sum().item<int64_t>(), 1096228);
}

}  // namespace
}  // namespace headroom::model
