#include "parallel/collectives/mesh.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "parallel/base/check.h"
#include "tests/support/run_ranks.h"

namespace headroom::collectives {
namespace {

TEST(Mesh, GroupsTheRanksOfEachAxis) {
  const plan::ParallelLayout layout{2, 3, 2};
  run_ranks(layout.world_size(), [&](int rank, Communicator& world) {
    Mesh mesh(world, layout);
    EXPECT_EQ(mesh.pipeline->size(), 2);
    EXPECT_EQ(mesh.data->size(), 3);
    EXPECT_EQ(mesh.spatial->size(), 2);
    EXPECT_EQ(mesh.replicas->size(), 6);
    EXPECT_EQ(mesh.statistics->size(), 6);
    EXPECT_EQ(mesh.pipeline->rank(), mesh.here.pipeline_stage);
    EXPECT_EQ(mesh.data->rank(), mesh.here.data_parallel_rank);
    EXPECT_EQ(mesh.spatial->rank(), mesh.here.spatial_rank);
    EXPECT_EQ(mesh.replicas->rank(), rank % 6);

    // The sum of a group's ranks identifies its members.
    const auto sum_along = [rank](Communicator& axis) {
      const at::Tensor sum = at::full({1}, rank, at::kLong);
      axis.all_reduce(sum);
      return sum.item<int64_t>();
    };
    EXPECT_EQ(sum_along(*mesh.pipeline), 2 * (rank % 6) + 6);
    EXPECT_EQ(sum_along(*mesh.spatial), 2 * (rank - rank % 2) + 1);
    EXPECT_EQ(sum_along(*mesh.data), 3 * (rank / 6 * 6 + rank % 2) + 6);
    EXPECT_EQ(sum_along(*mesh.replicas), rank < 6 ? 15 : 51);
  });
}

TEST(Mesh, CountsTheBytesOfEachAxis) {
  run_ranks(2, [&](int rank, Communicator& world) {
    Mesh mesh(world, {1, 2, 1});
    const at::Tensor part = at::zeros({4}, at::kDouble);
    const at::Tensor whole = at::zeros({8}, at::kDouble);
    mesh.data->all_reduce(part);
    mesh.data->all_gather(whole, part);
    mesh.data->reduce_scatter(part, whole);
    mesh.data->broadcast(part, 0);
    EXPECT_EQ(mesh.data->bytes(), 32 + 32 + 64 + (rank == 0 ? 32 : 0));
    mesh.spatial->all_reduce(part);
    EXPECT_EQ(mesh.spatial->bytes(), 0) << "a group of one";
    EXPECT_EQ(mesh.replicas->bytes(), 0);
  });
}

TEST(Communicator, MessagesUnderWayMatchInOrderOfIssue) {
  for (const RankBackend backend :
       {RankBackend::kLocal, RankBackend::kNetwork}) {
    RankOptions options;
    options.backend = backend;
    run_ranks(
        2,
        [&](int rank, Communicator& world) {
          const int peer = 1 - rank;
          std::vector<std::unique_ptr<Work>> sends;
          std::vector<at::Tensor> sent;
          for (int i = 0; i < 3; ++i) {
            sent.push_back(at::full({5 + i}, 10 * rank + i, at::kFloat));
            sends.push_back(world.send_async(sent.back(), peer));
          }
          std::vector<at::Tensor> received;
          std::vector<std::unique_ptr<Work>> receives;
          for (int i = 0; i < 3; ++i) {
            received.push_back(at::zeros({5 + i}, at::kFloat));
            receives.push_back(world.recv_async(received.back(), peer));
          }
          // The test waits for the works in another order than the one in which
          // they were issued.
          for (int i = 2; i >= 0; --i) receives[i]->wait();
          for (int i = 2; i >= 0; --i) sends[i]->wait();
          for (int i = 0; i < 3; ++i) {
            EXPECT_TRUE(
                received[i].equal(at::full({5 + i}, 10 * peer + i, at::kFloat)))
                << received[i];
          }
        },
        options);
  }
}

// Rank 3 of 2 x 2 leaves. Its neighbours notice this and disconnect; then rank
// 0, which exchanges only with these neighbours, notices it too.
TEST(Mesh, ARankThatDisconnectsFreesThoseThatWaitForIt) {
  RankOptions options;
  options.operation_timeout = std::chrono::seconds(60);
  options.time_limit = std::chrono::seconds(40);
  for (const RankBackend backend :
       {RankBackend::kLocal, RankBackend::kNetwork}) {
    options.backend = backend;
    run_ranks(
        4,
        [](int rank, Communicator& world) {
          plan::ParallelLayout layout;
          layout.pipeline_parallel_size = 2;
          layout.data_parallel_size = 2;
          Mesh mesh(world, layout);
          const at::Tensor value = at::ones({3});
          if (rank == 1 || rank == 2) {
            EXPECT_THROW(
                (rank == 1 ? mesh.pipeline : mesh.data)->recv(value, 1),
                CommunicationError);
          } else if (rank == 0) {
            EXPECT_THROW(mesh.data->recv(value, 1), CommunicationError);
          }
          mesh.disconnect();
          EXPECT_THROW(mesh.data->all_reduce(value), CommunicationError);
        },
        options);
  }
}

}  // namespace
}  // namespace headroom::collectives
