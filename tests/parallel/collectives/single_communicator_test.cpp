#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"

namespace headroom::collectives {
namespace {

TEST(SingleCommunicatorTest, ReturnsItsInput) {
  const auto alone = make_single_communicator();
  EXPECT_EQ(alone->rank(), 0);
  EXPECT_EQ(alone->size(), 1);
  const at::Tensor input = at::arange(5, at::kDouble);
  const at::Tensor tensor = input.clone();
  alone->all_reduce(tensor);
  alone->all_reduce(tensor, ReduceOp::kMax);
  alone->broadcast(tensor, 0);
  alone->barrier();
  EXPECT_TRUE(at::equal(tensor, input));
  const at::Tensor gathered = at::zeros({1, 5}, at::kDouble);
  alone->all_gather(gathered, input);
  EXPECT_TRUE(at::equal(gathered[0], input));
  const at::Tensor scattered = at::zeros({5}, at::kDouble);
  alone->reduce_scatter(scattered, input);
  EXPECT_TRUE(at::equal(scattered, input));
  EXPECT_EQ(alone->split(3, 1)->size(), 1);
}

TEST(SingleCommunicatorTest, HasNoPeers) {
  const auto alone = make_single_communicator();
  EXPECT_THROW(alone->send(at::ones({1}), 1), CheckFailure);
  EXPECT_THROW(alone->recv(at::ones({1}), 0), CheckFailure);
}

TEST(BackendTest, AGroupOfOneNeedsNoStore) {
  for (const plan::Backend backend :
       {plan::Backend::kAuto, plan::Backend::kGloo}) {
    EXPECT_EQ(make_communicator(backend, nullptr, "", 0, 1)->size(), 1);
  }
}

}  // namespace
}  // namespace headroom::collectives
