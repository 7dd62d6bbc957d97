// Tests ranks that exchange the tensors of a device through the host.
#include "parallel/collectives/backend.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"
#include "tests/support/test_device/test_device_api.h"

namespace headroom::collectives {
namespace {

void on_two_ranks(
    const std::function<void(int, Communicator&, c10::Device)>& body) {
  test_compute_device();
  run_ranks(2, [&](int rank, Communicator& world) {
    const auto device_host =
        make_device_host_communicator(world.split(0, rank), nullptr);
    body(rank, *device_host, test_compute_device(rank).device());
  });
}

TEST(DeviceHostCommunicator, CollectivesOfADeviceAreThoseOfTheHost) {
  on_two_ranks([](int rank, Communicator& ranks, c10::Device device) {
    const auto place = at::TensorOptions(device).dtype(at::kDouble);
    const at::Tensor sum = at::full({3, 2}, rank + 1.0, place);
    // Two operations are in progress at the same time.
    const at::Tensor most = at::full({2}, rank * 5.0, place);
    const auto first = ranks.all_reduce_async(sum, ReduceOp::kSum);
    const auto second = ranks.all_reduce_async(most, ReduceOp::kMax);
    first->wait();
    second->wait();
    EXPECT_TRUE(sum.cpu().equal(at::full({3, 2}, 3.0, at::kDouble)));
    EXPECT_TRUE(most.cpu().equal(at::full({2}, 5.0, at::kDouble)));

    const at::Tensor whole = at::empty({4}, place);
    ranks.all_gather(whole, at::full({2}, rank * 1.0, place));
    EXPECT_EQ(whole.cpu().sum().item<double>(), 2);
    const at::Tensor part = at::empty({2}, place);
    ranks.reduce_scatter(part, at::arange(4, place));
    EXPECT_EQ(part.cpu()[0].item<double>(), rank == 0 ? 0 : 4);
    const at::Tensor same = at::full({2}, rank + 7.0, place);
    ranks.broadcast(same, 1);
    EXPECT_EQ(same.cpu()[0].item<double>(), 8);
  });
}

TEST(DeviceHostCommunicator, MessagesAndTensorsOfTheHostPass) {
  on_two_ranks([](int rank, Communicator& ranks, c10::Device device) {
    const auto place = at::TensorOptions(device).dtype(at::kFloat);
    const at::Tensor mine = at::full({5}, rank + 1.0, place);
    const at::Tensor other = at::empty({5}, place);
    const auto arrives = ranks.recv_async(other, 1 - rank);
    ranks.send(mine, 1 - rank);
    arrives->wait();
    EXPECT_EQ(other.cpu()[4].item<float>(), 2 - rank);
    const at::Tensor host = at::full({2}, 1.0, at::kDouble);
    ranks.split(0, rank)->all_reduce(host);
    EXPECT_EQ(host[0].item<double>(), 2);
  });
}

}  // namespace
}  // namespace headroom::collectives
