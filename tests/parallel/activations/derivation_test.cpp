#include "parallel/activations/derivation.h"

#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/sigmoid.h>
#include <gtest/gtest.h>

#include <optional>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"

namespace headroom::activations {
namespace {

constexpr int64_t kSize = 1 << 12;
constexpr int64_t kBytes = 8 * kSize;

class DerivationTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    CountingAllocator::install();
    install_saved_tensor_policies();
  }
  // The live bytes in units of a map, which has kSize doubles.
  int64_t live() const { return (memory_.live_bytes() - start_) / kBytes; }

  // Returns sigmoid(source), registered as derived from `source`, and counts
  // how often it is derived.
  at::Tensor derived(const at::Tensor& source) {
    at::Tensor map = at::sigmoid(source);
    set_derivation(map, {source}, [this](const std::vector<at::Tensor>& from) {
      ++made_;
      return at::sigmoid(from.front());
    });
    return map;
  }

  CountingAllocator& memory_ = CountingAllocator::instance();
  const int64_t start_ = memory_.live_bytes();
  int made_ = 0;
};

TEST_F(DerivationTest, AMapIsDerivedOnceForAllReaders) {
  at::Tensor source = at::rand({kSize}, at::kDouble);
  at::Tensor map = derived(source);
  const at::Tensor expected = map.clone();
  std::optional<KeptTensor> first(keep(map)), second(keep(map));
  map.reset();
  source.reset();
  EXPECT_EQ(live(), 2) << "the expected copy and the source";
  EXPECT_EQ(made_, 0);
  EXPECT_TRUE(at::equal(first->take(), expected));
  EXPECT_EQ(live(), 2) << "the source is gone, the map waits for its last use";
  EXPECT_TRUE(at::equal(second->take(), expected));
  EXPECT_EQ(made_, 1);
  EXPECT_EQ(live(), 1);
}

TEST_F(DerivationTest, AnUnusedReaderHoldsNoMemory) {
  at::Tensor source = at::rand({kSize}, at::kDouble);
  at::Tensor map = derived(source);
  std::optional<KeptTensor> first(keep(map)), second(keep(map));
  map.reset();
  source.reset();
  first->take();
  EXPECT_EQ(live(), 1);
  second.reset();
  EXPECT_EQ(live(), 0);
}

TEST_F(DerivationTest, IsFreedWithAMapThatNothingKeeps) {
  at::Tensor source = at::rand({kSize}, at::kDouble);
  at::Tensor map = derived(source);
  source.reset();
  EXPECT_EQ(live(), 2);
  map.reset();
  EXPECT_EQ(live(), 0);
}

TEST_F(DerivationTest, SourcesAreDerivedInTheirTurn) {
  at::Tensor source = at::rand({kSize}, at::kDouble);
  at::Tensor middle = derived(source);
  at::Tensor last = derived(middle);
  const at::Tensor expected = last.clone(), expected_middle = middle.clone();
  std::optional<KeptTensor> of_last(keep(last)), of_middle(keep(middle));
  last.reset();
  middle.reset();
  source.reset();
  EXPECT_EQ(live(), 3);
  EXPECT_TRUE(at::equal(of_last->take(), expected));
  EXPECT_EQ(made_, 2);
  EXPECT_TRUE(at::equal(of_middle->take(), expected_middle));
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(live(), 2);
}

TEST_F(DerivationTest, AMapThatIsStillHeldIsUsedAsItIs) {
  const at::Tensor source = at::rand({kSize}, at::kDouble);
  const at::Tensor map = derived(source);
  KeptTensor kept = keep(map);
  EXPECT_EQ(kept.take().data_ptr(), map.data_ptr());
  EXPECT_EQ(made_, 0);
}

TEST_F(DerivationTest, AViewOfOtherShapeIsKept) {
  const at::Tensor source = at::rand({kSize}, at::kDouble);
  const at::Tensor map = derived(source);
  const at::Tensor same = map.view({kSize});
  const at::Tensor part = map.narrow(0, 1, kSize - 1);
  KeptTensor whole = keep(same), window = keep(part);
  EXPECT_EQ(window.take().storage_offset(), 1);
  whole.take();
}

TEST_F(DerivationTest, AConvolutionIsRecomputedOnlyOnRequest) {
  const at::Tensor source = at::rand({kSize}, at::kDouble);
  at::Tensor map = at::sigmoid(source);
  set_derivation(
      map, {source},
      [this](const std::vector<at::Tensor>& from) {
        ++made_;
        return at::sigmoid(from.front());
      },
      DerivationCost::kConvolution);
  KeptTensor kept = keep(map);
  KeptTensor again = keep(map, DerivationCost::kConvolution);
  map.reset();
  EXPECT_EQ(live(), 2);
  kept.take();
  again.take();
  EXPECT_EQ(made_, 1);
}

TEST_F(DerivationTest, ASecondDerivationIsAMistake) {
  const at::Tensor source = at::rand({kSize}, at::kDouble);
  const at::Tensor map = derived(source);
  EXPECT_THROW(set_derivation(map, {source},
                              [](const std::vector<at::Tensor>& from) {
                                return from.front();
                              }),
               CheckFailure);
}

// Autograd reads a derived map in two places.
TEST_F(DerivationTest, ThePolicyChangesNoBitAndKeepsLess) {
  const at::Tensor x = at::rand({kSize}, at::kDouble).requires_grad_();
  const at::Tensor weight = at::rand({kSize}, at::kDouble);
  const auto network = [&](bool derive) {
    const at::Tensor y = at::mul(x, 2.0);
    at::Tensor map = at::add(y, 1.0);
    if (derive) {
      set_derivation(map, {y}, [this](const std::vector<at::Tensor>& from) {
        ++made_;
        return at::add(from.front(), 1.0);
      });
    }
    // Both products save the map.
    return at::mul(at::mul(map, weight), at::sigmoid(at::mul(map, map))).sum();
  };
  network(false).backward();
  const at::Tensor expected = x.grad().clone();
  x.mutable_grad().reset();
  DerivedPolicy lean;
  at::Tensor sum;
  {
    const SavedTensorPolicyGuard guard(&lean);
    sum = network(true);
  }
  EXPECT_EQ(made_, 0);
  sum.backward();
  EXPECT_EQ(made_, 1);
  EXPECT_TRUE(at::equal(x.grad(), expected));
}

}  // namespace
}  // namespace headroom::activations
