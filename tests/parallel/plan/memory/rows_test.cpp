#include "parallel/plan/memory/rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/parallel/plan/memory/pass_fixture.h"

namespace headroom::memory {
namespace {

using Kind = ModelRow::Kind;

// What is kept of a row on maps of stride 4, in channels of it: 512 bytes each.
class Rows : public PassFixture {
 protected:
  static constexpr int64_t kChannel = 2 * 8 * 8 * 4;

  static ModelRow row(Kind kind, int64_t channels) {
    ModelRow row;
    row.kind = kind;
    row.channels = channels;
    row.stride = 4;
    return row;
  }
  // Live bytes, inputs included, without the row's outputs.
  int64_t kept(const ModelRow& row, const std::vector<Map>& inputs) {
    const std::vector<Map> outputs = run_row(pass(), row, inputs);
    int64_t own = 0;
    for (const Map& output : outputs) own += output.memory->bytes;
    return tape_.live_bytes() - own;
  }
  // Of norms of so many channels.
  static int64_t statistics(int64_t channels) { return 2 * channels * 8; }
};

// The input; of four blocks the convolutions; the first block's output and the
// bottleneck's inner one; the concatenation.
TEST_F(Rows, C3) {
  ModelRow c3 = row(Kind::kC3, 32);
  c3.repeats = 1;
  c3.shortcut = true;
  EXPECT_EQ(kept(c3, {map(32, 4)}),
            (32 + 16 + 16 + 16 + 16 + 16 + 16 + 32 + 32) * kChannel +
                statistics(4 * 16 + 32));
}

// The input; its convolution and that one's output; two pooled maps; indices,
// twice as wide; the concatenation; the last convolution.
TEST_F(Rows, Sppf) {
  EXPECT_EQ(kept(row(Kind::kSppf, 32), {map(32, 4)}),
            (32 + 16 + 16 + 2 * 16 + 3 * 2 * 16 + 64 + 32) * kChannel +
                statistics(16 + 32));
}

TEST_F(Rows, Conv) {
  EXPECT_EQ(kept(row(Kind::kConv, 16), {map(32, 4)}),
            (32 + 16) * kChannel + statistics(16));
}

TEST_F(Rows, AHeadKeepsItsInputs) {
  const std::vector<Map> inputs = {map(32, 4), map(64, 8)};
  const std::vector<Map> heads =
      run_row(pass(), row(Kind::kDetect, 36), inputs);
  ASSERT_EQ(heads.size(), 2U);
  EXPECT_EQ(heads[0].memory->bytes, 18 * kChannel);
  EXPECT_EQ(heads[1].memory->bytes, 18 * kChannel / 4);
  EXPECT_EQ(tape_.live_bytes(),
            (32 + 16) * kChannel + (18 * kChannel + 18 * kChannel / 4));
}

// What is left are the inputs, which the test holds.
TEST_F(Rows, ResamplingRowsKeepNothing) {
  EXPECT_EQ(kept(row(Kind::kConcat, 48), {map(32, 4), map(16, 4)}),
            (32 + 16) * kChannel);
  EXPECT_EQ(kept(row(Kind::kUpsample, 32), {map(32, 8)}), 32 * kChannel / 4);
}

}  // namespace
}  // namespace headroom::memory
