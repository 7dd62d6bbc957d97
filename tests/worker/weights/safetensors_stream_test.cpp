#include "worker/weights/safetensors.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "parallel/base/check.h"

namespace headroom::weights {
namespace {

namespace fs = std::filesystem;

const fs::path kFile =
    fs::path(HEADROOM_BUILD_DIR) / "tests" / "stream.safetensors";

TEST(SafetensorsStreamTest, TensorsComeBackInAnyOrder) {
  const at::Tensor weight =
      at::rand({4, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor count = at::full({}, 7, at::kLong);
  std::vector<TensorDescription> tensors = {
      {"weight", at::kFloat, {4, 3, 3, 3}}, {"count", at::kLong, {}}};
  order_for_file(tensors);
  EXPECT_EQ(tensors[0].name, "count");  // larger elements first
  SafetensorsWriter writer(kFile, tensors, {{"key", "text"}});
  writer.write(count);
  writer.write(weight);
  writer.commit();

  SafetensorsReader reader(kFile);
  EXPECT_EQ(reader.header().metadata.at("key"), "text");
  ASSERT_EQ(reader.header().entries.size(), 2u);
  EXPECT_TRUE(at::equal(reader.read(reader.header().entries[1]), weight));
  EXPECT_TRUE(at::equal(reader.read(reader.header().entries[0]), count));
}

TEST(SafetensorsStreamTest, AnUnannouncedTensorIsRefused) {
  SafetensorsWriter writer(kFile, {{"a", at::kFloat, {2}}}, {});
  EXPECT_THROW(writer.commit(), CheckFailure);
  EXPECT_THROW(writer.write(at::zeros({3})), CheckFailure);
  EXPECT_THROW(writer.write(at::zeros({2}, at::kDouble)), CheckFailure);
}

TEST(SafetensorsStreamTest, AnUnfinishedFileDoesNotExist) {
  fs::remove(kFile);
  { SafetensorsWriter writer(kFile, {{"a", at::kFloat, {2}}}, {}); }
  EXPECT_FALSE(fs::exists(kFile));
}

}  // namespace
}  // namespace headroom::weights
