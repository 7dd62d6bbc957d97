#include "parallel/spatial/halo_exchange.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "parallel/base/check.h"
#include "parallel/collectives/counting_communicator.h"
#include "tests/support/run_ranks.h"

namespace headroom::spatial {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

// A map whose elements are all different.
at::Tensor numbered(at::IntArrayRef sizes) {
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  return at::arange(numel, at::kDouble).view(sizes).contiguous(kChannelsLast);
}

// The whole map, with `top` rows of `value` above it and `bottom` rows below
// it.
at::Tensor framed(const at::Tensor& map, int64_t top, int64_t bottom,
                  double value) {
  const auto rows = [&](int64_t count) {
    return at::full({map.size(0), map.size(1), count, map.size(3)}, value,
                    map.options());
  };
  return at::cat({rows(top), map, rows(bottom)}, 2);
}

struct Case {
  int64_t samples, channels, blocks, rows_per_block, width;
  int ranks;
  int64_t top, bottom;
};

at::Tensor own_rows(const at::Tensor& map, const RowRange& rows) {
  return map.narrow(2, rows.begin, rows.size()).contiguous(kChannelsLast);
}

void check_exchange(const Case& c, RankBackend backend = RankBackend::kLocal) {
  const ImageSplit partition(c.blocks * 32, 32, c.ranks);
  const at::Tensor map =
      numbered({c.samples, c.channels, c.blocks * c.rows_per_block, c.width});
  const at::Tensor frame = framed(map, c.top, c.bottom, -7);
  // The gradient of a row is the sum over all halos in which it was. Rank r
  // returns multiples of 10^r, so that the digits show which ranks' gradients
  // arrived.
  at::Tensor returned = at::zeros_like(frame);
  const auto given_by = [&](int rank) {
    at::Tensor gradients = at::zeros_like(frame);
    const RowRange rows = partition.rows_of(rank, c.rows_per_block);
    const auto fill = [&](int64_t begin, int64_t count) {
      for (int64_t i = begin; i < begin + count; ++i)
        gradients.select(2, i).fill_((i + 1) * std::pow(10.0, rank));
    };
    fill(rows.begin, c.top);
    fill(rows.end + c.top, c.bottom);
    return gradients;
  };
  for (int rank = 0; rank < c.ranks; ++rank) returned.add_(given_by(rank));

  RankOptions options;
  options.backend = backend;
  run_ranks(
      c.ranks,
      [&](int rank, collectives::Communicator& ranks) {
        CommunicatorHaloExchange exchange(ranks, partition);
        const RowRange rows = partition.rows_of(rank, c.rows_per_block);
        EXPECT_EQ(exchange.window(rows.size()),
                  (RowWindow{rows.begin, map.size(2)}));
        const at::Tensor x = own_rows(map, rows);
        const at::Tensor halo = exchange.receive(x, c.top, c.bottom, -7);
        EXPECT_TRUE(halo.is_contiguous(kChannelsLast));
        EXPECT_TRUE(at::equal(
            halo, at::cat({frame.narrow(2, rows.begin, c.top),
                           frame.narrow(2, rows.end + c.top, c.bottom)},
                          2)));

        const at::Tensor gradients = given_by(rank);
        const at::Tensor dhalo =
            at::cat({gradients.narrow(2, rows.begin, c.top),
                     gradients.narrow(2, rows.end + c.top, c.bottom)},
                    2)
                .contiguous(kChannelsLast);
        const at::Tensor dx =
            at::full(x.sizes(), 0.5, x.options().memory_format(kChannelsLast));
        exchange.give_back(dhalo, dx, c.top);
        EXPECT_TRUE(at::equal(
            dx, returned.narrow(2, c.top + rows.begin, rows.size()) + 0.5));
      },
      options);
}

TEST(HaloExchange, RowsComeAndGradientsReturn) {
  check_exchange({1, 3, 6, 4, 5, 3, 1, 1});
  check_exchange({2, 3, 7, 2, 5, 3, 2, 2});
  check_exchange({2, 1, 4, 4, 1, 2, 1, 0});
}

TEST(HaloExchange, RowsMayComeFromSeveralRanks) {
  check_exchange({2, 3, 4, 1, 5, 4, 6, 6});
  check_exchange({1, 2, 5, 1, 3, 4, 2, 3});
}

TEST(HaloExchange, OverGlooToo) {
  check_exchange({2, 3, 4, 1, 5, 3, 2, 2}, RankBackend::kNetwork);
}

TEST(HaloExchange, RandomShapes) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    Case c{};
    c.samples = random() % 3;
    c.channels = 1 + random() % 4;
    c.blocks = 1 + random() % 8;
    c.rows_per_block = 1 + random() % 3;
    c.width = 1 + random() % 4;
    c.ranks = 1 + static_cast<int>(random() % std::min<int64_t>(c.blocks, 4));
    c.top = random() % 5;
    c.bottom = random() % 5;
    SCOPED_TRACE("trial " + std::to_string(trial));
    check_exchange(c);
  }
}

TEST(HaloExchange, WithoutSamplesNothingIsSent) {
  run_ranks(2, [](int, collectives::Communicator& ranks) {
    collectives::CountingCommunicator counting(ranks.split(0, ranks.rank()));
    CommunicatorHaloExchange exchange(counting, ImageSplit(64, 32, 2));
    const at::Tensor x = at::empty({0, 3, 2, 5}, at::kDouble);
    const at::Tensor halo = exchange.receive(x, 1, 1, 0);
    EXPECT_EQ(halo.sizes(), at::IntArrayRef({0, 3, 2, 5}));
    exchange.give_back(halo, x, 1);
    EXPECT_EQ(counting.bytes(), 0);
  });
}

TEST(HaloExchange, RanksAndPartsMustAgree) {
  const auto alone = collectives::make_single_communicator();
  EXPECT_THROW(CommunicatorHaloExchange(*alone, ImageSplit(64, 32, 2)),
               CheckFailure);
}

}  // namespace
}  // namespace headroom::spatial
