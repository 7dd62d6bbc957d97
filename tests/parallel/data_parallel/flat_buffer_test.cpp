#include "parallel/data_parallel/flat_buffer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"

namespace headroom::data_parallel {
namespace {

at::Tensor ramp(at::IntArrayRef sizes, at::ScalarType type) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(1, count + 1, type).view(sizes);
}

class FlatBufferTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    weight_ = ramp({5, 3, 3, 3}, GetParam())
                  .contiguous(at::MemoryFormat::ChannelsLast);
    bias_ = ramp({5}, GetParam());
    transposed_ = ramp({7, 11}, GetParam()).t();
    scalar_ = at::scalar_tensor(42, GetParam());
    empty_ = at::empty({0}, GetParam());
  }
  std::vector<FlatBufferEntry> entries() {
    return {{"weight", &weight_, 0},
            {"bias", &bias_, 0},
            {"transposed", &transposed_, 2},
            {"empty", &empty_, 2},
            {"scalar", &scalar_, 5}};
  }
  static FlatBufferOptions options(bool with_gradients) {
    FlatBufferOptions result;
    result.scalar_type = GetParam();
    result.with_gradients = with_gradients;
    return result;
  }
  at::Tensor weight_, bias_, transposed_, scalar_, empty_;
};

TEST_P(FlatBufferTest, KeepsValuesSizesAndStrides) {
  std::vector<at::Tensor> before;
  for (const FlatBufferEntry& entry : entries())
    before.push_back(*entry.tensor);
  FlatBuffer flat_buffer(entries(), options(false));
  const std::vector<FlatBufferEntry> after = entries();
  for (size_t i = 0; i < after.size(); ++i) {
    const at::Tensor& tensor = *after[i].tensor;
    EXPECT_TRUE(at::equal(tensor, before[i])) << after[i].name;
    EXPECT_EQ(tensor.sizes(), before[i].sizes()) << after[i].name;
    EXPECT_EQ(tensor.strides(), before[i].strides()) << after[i].name;
    EXPECT_TRUE(tensor.is_same(flat_buffer.entry(static_cast<int64_t>(i))));
    EXPECT_FALSE(tensor.requires_grad());
  }
  EXPECT_FALSE(flat_buffer.gradients().defined());
}

TEST_P(FlatBufferTest, SlotsAreAlignedInOrderAndPaddedWithZeros) {
  FlatBuffer flat_buffer(entries(), options(false));
  const int64_t element =
      static_cast<int64_t>(flat_buffer.values().element_size());
  const at::Tensor covered = at::zeros({flat_buffer.size()}, at::kBool);
  int64_t end = 0;
  for (const FlatBuffer::Slot& slot : flat_buffer.slots()) {
    EXPECT_GE(slot.offset, end) << slot.name;
    EXPECT_EQ(slot.offset * element % 64, 0) << slot.name;
    end = slot.offset + slot.size;
    covered.narrow(0, slot.offset, slot.size).fill_(true);
  }
  EXPECT_LE(end, flat_buffer.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(flat_buffer.values().data_ptr()) % 64,
            0u);
  EXPECT_EQ(flat_buffer.slots()[0].size, 135);
  EXPECT_EQ(flat_buffer.slots()[4].name, "scalar");
  const at::Tensor padding =
      flat_buffer.values().masked_select(covered.logical_not());
  EXPECT_GT(padding.numel(), 0);
  EXPECT_TRUE(at::equal(padding, at::zeros_like(padding)));
}

TEST_P(FlatBufferTest, EntriesAndBufferAreTheSameMemory) {
  FlatBuffer flat_buffer(entries(), options(true));
  {
    at::NoGradGuard no_grad;
    flat_buffer.values().fill_(3);
    EXPECT_EQ(weight_.sum().item<double>(), 3 * 135.0);
    bias_.zero_();
  }
  const FlatBuffer::Slot& slot = flat_buffer.slots()[1];
  EXPECT_EQ(flat_buffer.values()
                .narrow(0, slot.offset, slot.size)
                .abs()
                .sum()
                .item<double>(),
            0);
}

TEST_P(FlatBufferTest, BackwardAddsIntoTheGradients) {
  FlatBuffer flat_buffer(entries(), options(true));
  EXPECT_TRUE(weight_.is_leaf());
  EXPECT_TRUE(weight_.requires_grad());
  const void* const before = weight_.grad().data_ptr();
  for (int pass = 1; pass <= 2; ++pass) {
    ((weight_ * 2).sum() + (transposed_ * bias_.sum()).sum()).backward();
    EXPECT_EQ(weight_.grad().data_ptr(), before);
    EXPECT_EQ(weight_.grad().strides(), weight_.strides());
    EXPECT_TRUE(at::equal(flat_buffer.view(0, flat_buffer.gradients()),
                          at::full_like(weight_.detach(), 2.0 * pass)));
    EXPECT_TRUE(
        at::equal(flat_buffer.view(2, flat_buffer.gradients()),
                  at::full_like(transposed_.detach(),
                                pass * bias_.detach().sum().item<double>())));
    EXPECT_TRUE(at::equal(flat_buffer.view(4, flat_buffer.gradients()),
                          at::zeros_like(scalar_.detach())));
  }
  flat_buffer.zero_gradients();
  EXPECT_EQ(flat_buffer.gradients().abs().sum().item<double>(), 0);
}

// If an entry were a view, it would share its version counter with all other
// entries. Backward would then refuse a weight that it saved, because another
// weight was changed.
TEST_P(FlatBufferTest, ChangingOneEntryDoesNotInvalidateAnother) {
  FlatBuffer flat_buffer(entries(), options(true));
  const at::Tensor input = at::ones({5}, GetParam());
  input.set_requires_grad(true);
  const at::Tensor loss = (input * bias_).sum();
  {
    at::NoGradGuard no_grad;
    weight_.add_(1);
  }
  EXPECT_NO_THROW(loss.backward());
}

TEST_P(FlatBufferTest, ViewsSeeOtherBuffersAsTheEntry) {
  FlatBuffer flat_buffer(entries(), options(false));
  const at::Tensor other = at::zeros_like(flat_buffer.values());
  const at::Tensor view = flat_buffer.view(0, other);
  EXPECT_EQ(view.sizes(), weight_.sizes());
  EXPECT_EQ(view.strides(), weight_.strides());
  view.fill_(1);
  EXPECT_EQ(other.sum().item<double>(), 135);
  EXPECT_THROW(flat_buffer.view(0, other.narrow(0, 0, 8)), CheckFailure);
}

TEST_P(FlatBufferTest, LayersAreCutIntoEqualAlignedParts) {
  FlatBufferOptions three = options(false);
  three.layer_parts = 3;
  FlatBuffer flat_buffer(entries(), three);
  const int64_t alignment =
      64 / static_cast<int64_t>(flat_buffer.values().element_size());
  ASSERT_EQ(flat_buffer.layers().size(), 3u);
  EXPECT_EQ(flat_buffer.layers()[1].number, 2);
  EXPECT_EQ(flat_buffer.layers()[1].first_slot, 2);
  EXPECT_EQ(flat_buffer.layers()[1].last_slot, 4);
  int64_t end = 0;
  for (const FlatBuffer::Layer& layer : flat_buffer.layers()) {
    EXPECT_EQ(layer.offset, end);
    EXPECT_EQ(layer.padded_size % (3 * alignment), 0);
    EXPECT_GE(layer.padded_size, layer.size);
    end = layer.offset + layer.padded_size;
  }
  EXPECT_EQ(flat_buffer.size(), end);
  EXPECT_EQ(flat_buffer.slots()[4].offset, flat_buffer.layers()[2].offset);
  EXPECT_EQ(flat_buffer.layer_values(2)[0].item<double>(), 42);
}

TEST_P(FlatBufferTest, LayersApartHaveStoragesOfTheirOwn) {
  const at::Tensor before = weight_;
  FlatBufferOptions apart = options(true);
  apart.values_apart = apart.gradients_apart = true;
  FlatBuffer flat_buffer(entries(), apart);
  EXPECT_FALSE(flat_buffer.values().defined());
  EXPECT_FALSE(flat_buffer.gradients().defined());
  EXPECT_TRUE(at::equal(weight_, before));
  EXPECT_TRUE(weight_.is_alias_of(flat_buffer.layer_values(0)));
  EXPECT_TRUE(bias_.grad().is_alias_of(flat_buffer.layer_gradients(0)));
  EXPECT_FALSE(weight_.is_alias_of(flat_buffer.layer_values(1)));
  EXPECT_EQ(flat_buffer.layer_values(1).storage().nbytes(),
            flat_buffer.layer_values(1).nbytes());
}

TEST_P(FlatBufferTest, NothingIsAnFlatBufferOfSizeZero) {
  FlatBuffer flat_buffer({}, options(true));
  EXPECT_EQ(flat_buffer.size(), 0);
  EXPECT_EQ(flat_buffer.gradients().numel(), 0);
}

TEST_P(FlatBufferTest, LayersOutOfOrderAreRefused) {
  EXPECT_THROW(FlatBuffer({{"weight", &weight_, 3}, {"bias", &bias_, 1}},
                          options(false)),
               CheckFailure);
}

INSTANTIATE_TEST_SUITE_P(Types, FlatBufferTest,
                         testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) {
                           return std::string(at::toString(info.param));
                         });

TEST(FlatBufferRefusalTest, MixedTypesAndHolesAreRefused) {
  at::Tensor a = at::ones({4});
  at::Tensor b = at::ones({4}, at::kDouble);
  at::Tensor holes = at::ones({4, 4}).narrow(1, 0, 2);
  EXPECT_THROW(FlatBuffer({{"a", &a, 0}, {"b", &b, 0}}, {}), CheckFailure);
  EXPECT_THROW(FlatBuffer({{"a", &a, 0}, {"holes", &holes, 0}}, {}),
               CheckFailure);
}

}  // namespace
}  // namespace headroom::data_parallel
