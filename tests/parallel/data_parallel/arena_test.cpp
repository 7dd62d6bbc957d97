#include "parallel/data_parallel/arena.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom {
namespace {

at::Tensor ramp(at::IntArrayRef sizes, at::ScalarType type) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(1, count + 1, type).view(sizes);
}

class ArenaTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    weight_ = ramp({5, 3, 3, 3}, GetParam())
                  .contiguous(at::MemoryFormat::ChannelsLast);
    bias_ = ramp({5}, GetParam());
    transposed_ = ramp({7, 11}, GetParam()).t();
    scalar_ = at::scalar_tensor(42, GetParam());
    empty_ = at::empty({0}, GetParam());
  }
  std::vector<ArenaEntry> entries() {
    return {{"weight", &weight_},
            {"bias", &bias_},
            {"transposed", &transposed_},
            {"empty", &empty_},
            {"scalar", &scalar_}};
  }
  at::Tensor weight_, bias_, transposed_, scalar_, empty_;
};

TEST_P(ArenaTest, KeepsValuesSizesAndStrides) {
  std::vector<at::Tensor> before;
  for (const ArenaEntry& entry : entries()) before.push_back(*entry.tensor);
  Arena arena(entries(), false);
  const std::vector<ArenaEntry> after = entries();
  for (size_t i = 0; i < after.size(); ++i) {
    const at::Tensor& tensor = *after[i].tensor;
    EXPECT_TRUE(at::equal(tensor, before[i])) << after[i].name;
    EXPECT_EQ(tensor.sizes(), before[i].sizes()) << after[i].name;
    EXPECT_EQ(tensor.strides(), before[i].strides()) << after[i].name;
    EXPECT_TRUE(tensor.is_same(arena.entry(static_cast<int64_t>(i))));
    EXPECT_FALSE(tensor.requires_grad());
  }
  EXPECT_FALSE(arena.gradients().defined());
}

TEST_P(ArenaTest, SlotsAreAlignedInOrderAndPaddedWithZeros) {
  Arena arena(entries(), false);
  const int64_t element = static_cast<int64_t>(arena.values().element_size());
  const at::Tensor covered = at::zeros({arena.size()}, at::kBool);
  int64_t end = 0;
  for (const Arena::Slot& slot : arena.slots()) {
    EXPECT_GE(slot.offset, end) << slot.name;
    EXPECT_EQ(slot.offset * element % 64, 0) << slot.name;
    end = slot.offset + slot.size;
    covered.narrow(0, slot.offset, slot.size).fill_(true);
  }
  EXPECT_LE(end, arena.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.values().data_ptr()) % 64, 0u);
  EXPECT_EQ(arena.slots()[0].size, 135);
  EXPECT_EQ(arena.slots()[4].name, "scalar");
  const at::Tensor padding =
      arena.values().masked_select(covered.logical_not());
  EXPECT_GT(padding.numel(), 0);
  EXPECT_TRUE(at::equal(padding, at::zeros_like(padding)));
}

TEST_P(ArenaTest, EntriesAndBufferAreTheSameMemory) {
  Arena arena(entries(), true);
  {
    at::NoGradGuard no_grad;
    arena.values().fill_(3);
    EXPECT_EQ(weight_.sum().item<double>(), 3 * 135.0);
    bias_.zero_();
  }
  const Arena::Slot& slot = arena.slots()[1];
  EXPECT_EQ(arena.values()
                .narrow(0, slot.offset, slot.size)
                .abs()
                .sum()
                .item<double>(),
            0);
}

TEST_P(ArenaTest, BackwardAddsIntoTheGradients) {
  Arena arena(entries(), true);
  EXPECT_TRUE(weight_.is_leaf());
  EXPECT_TRUE(weight_.requires_grad());
  const void* const before = weight_.grad().data_ptr();
  for (int pass = 1; pass <= 2; ++pass) {
    ((weight_ * 2).sum() + (transposed_ * bias_.sum()).sum()).backward();
    EXPECT_EQ(weight_.grad().data_ptr(), before);
    EXPECT_EQ(weight_.grad().strides(), weight_.strides());
    EXPECT_TRUE(at::equal(arena.view(0, arena.gradients()),
                          at::full_like(weight_.detach(), 2.0 * pass)));
    EXPECT_TRUE(
        at::equal(arena.view(2, arena.gradients()),
                  at::full_like(transposed_.detach(),
                                pass * bias_.detach().sum().item<double>())));
    EXPECT_TRUE(at::equal(arena.view(4, arena.gradients()),
                          at::zeros_like(scalar_.detach())));
  }
  arena.zero_gradients();
  EXPECT_EQ(arena.gradients().abs().sum().item<double>(), 0);
}

// A view would share its version counter with all other entries, and backward
// would refuse a weight that it saved because another one has moved.
TEST_P(ArenaTest, ChangingOneEntryDoesNotInvalidateAnother) {
  Arena arena(entries(), true);
  const at::Tensor input = at::ones({5}, GetParam());
  input.set_requires_grad(true);
  const at::Tensor loss = (input * bias_).sum();
  {
    at::NoGradGuard no_grad;
    weight_.add_(1);
  }
  EXPECT_NO_THROW(loss.backward());
}

TEST_P(ArenaTest, ViewsSeeOtherBuffersAsTheEntry) {
  Arena arena(entries(), false);
  const at::Tensor other = at::zeros_like(arena.values());
  const at::Tensor view = arena.view(0, other);
  EXPECT_EQ(view.sizes(), weight_.sizes());
  EXPECT_EQ(view.strides(), weight_.strides());
  view.fill_(1);
  EXPECT_EQ(other.sum().item<double>(), 135);
  EXPECT_THROW(arena.view(0, other.narrow(0, 0, 8)), CheckFailure);
}

INSTANTIATE_TEST_SUITE_P(Types, ArenaTest,
                         testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) {
                           return std::string(at::toString(info.param));
                         });

TEST(ArenaRefusalTest, MixedTypesAndHolesAreRefused) {
  at::Tensor a = at::ones({4});
  at::Tensor b = at::ones({4}, at::kDouble);
  at::Tensor holes = at::ones({4, 4}).narrow(1, 0, 2);
  EXPECT_THROW(Arena({{"a", &a}, {"b", &b}}, false), CheckFailure);
  EXPECT_THROW(Arena({{"a", &a}, {"holes", &holes}}, false), CheckFailure);
}

}  // namespace
}  // namespace headroom
