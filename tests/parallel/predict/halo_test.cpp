#include "parallel/predict/operators.h"

#include <gtest/gtest.h>

#include "tests/parallel/predict/op_context_fixture.h"

namespace headroom::predict {
namespace {

class Halos : public PassFixture {};

TEST_F(Halos, RowsAroundAreThoseThatAKernelReadsBeyondItsStride) {
  EXPECT_EQ(rows_around(shape_, 3, 1), 0) << "whole images";
  shape_.neighbours = 1;
  EXPECT_EQ(rows_around(shape_, 1, 1), 0);
  EXPECT_EQ(rows_around(shape_, 3, 1), 2);
  EXPECT_EQ(rows_around(shape_, 3, 2), 1);
  EXPECT_EQ(rows_around(shape_, 6, 2), 4);
}

// The halo is two rows of 8 cells, 16 channels and 2 samples: 2,048 bytes.
TEST_F(Halos, AHaloIsFetchedThroughACopyOfItsMessages) {
  shape_.neighbours = 1;
  const Map x = map(16, 4);
  buffers_.reset_peak();
  const int64_t before = buffers_.live_bytes();
  const Memory halo = fetch_halo(context(), x, 2);
  EXPECT_EQ(halo->bytes, 2'048);
  EXPECT_EQ(buffers_.peak_bytes(), before + 2 * 2'048);
  const Memory joined = join_halo(context(), x, 2);
  EXPECT_EQ(joined->bytes, x.memory->bytes + 2'048);
}

// These are held at the same time: the sent rows, the gradient of the rank's
// own rows, the received rows and a copy of them.
TEST_F(Halos, AHalosGradientGoesBack) {
  shape_.neighbours = 1;
  const Map x = map(16, 4);
  buffers_.reset_peak();
  const int64_t before = buffers_.live_bytes();
  const Memory own_rows = give_back_halo(context(), x, 2);
  EXPECT_EQ(own_rows->bytes, x.memory->bytes);
  EXPECT_EQ(buffers_.live_bytes(), before + x.memory->bytes);
  EXPECT_EQ(buffers_.peak_bytes(), before + x.memory->bytes + 3 * 2'048);
}

}  // namespace
}  // namespace headroom::predict
