#include "parallel/data_parallel/communicator_exchange.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/run_ranks.h"

namespace headroom::data_parallel {
namespace {

TEST(CommunicatorExchangeTest, SumsOverRanks) {
  for (const RankBackend backend :
       {RankBackend::kLocal, RankBackend::kNetwork}) {
    RankOptions options;
    options.backend = backend;
    run_ranks(
        3,
        [](int rank, collectives::Communicator& ranks) {
          CommunicatorExchange exchange(ranks);
          for (const size_t size : {1u, 64u, 3u}) {
            std::vector<double> values(size + 1, rank + 0.5);
            exchange.sum(std::span(values).first(size));
            for (size_t i = 0; i < size; ++i) EXPECT_EQ(values[i], 4.5);
            EXPECT_EQ(values[size], rank + 0.5) << "beyond the span";
          }
        },
        options);
  }
}

}  // namespace
}  // namespace headroom::data_parallel
