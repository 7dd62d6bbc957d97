#include "parallel/predict/op_context.h"

#include <gtest/gtest.h>

namespace headroom::predict {
namespace {

class Derivations : public testing::Test {
 protected:
  // The derived map is as large as its source.
  Memory derived_from(const Memory& source, Cost cost = Cost::kElementwise) {
    Memory map = buffers_.allocate(source->bytes);
    set_derivation(
        map, {source},
        [this, bytes = source->bytes](const std::vector<Memory>&) {
          return buffers_.allocate(bytes);
        },
        cost);
    return map;
  }

  LiveBuffers buffers_;
};

TEST_F(Derivations, ADerivedMapFreesItsSource) {
  Memory source = buffers_.allocate(100);
  Memory map = derived_from(source);
  Kept kept = keep(map);
  map.reset();
  source.reset();
  EXPECT_EQ(buffers_.live_bytes(), 100) << "the source";
  buffers_.reset_peak();
  const Memory again = kept.take();
  EXPECT_EQ(buffers_.peak_bytes(), 200) << "while it is made";
  EXPECT_EQ(buffers_.live_bytes(), 100) << "the map";
}

TEST_F(Derivations, AMapWaitsForItsLastUse) {
  Memory source = buffers_.allocate(100);
  Memory map = derived_from(source);
  Kept first = keep(map), second = keep(map);
  map.reset();
  source.reset();
  first.take();
  EXPECT_EQ(buffers_.live_bytes(), 100);
  second.take();
  EXPECT_EQ(buffers_.live_bytes(), 0);
}

TEST_F(Derivations, AMapThatIsStillHeldIsUsed) {
  const Memory source = buffers_.allocate(100);
  const Memory map = derived_from(source);
  Kept kept = keep(map);
  buffers_.reset_peak();
  EXPECT_EQ(kept.take(), map);
  EXPECT_EQ(buffers_.peak_bytes(), 200);
}

TEST_F(Derivations, DerivedSourcesAreMadeAgainToo) {
  Memory source = buffers_.allocate(100);
  Memory middle = derived_from(source);
  Memory map = derived_from(middle);
  Kept kept = keep(map);
  map.reset();
  middle.reset();
  source.reset();
  EXPECT_EQ(buffers_.live_bytes(), 100) << "the source alone";
  buffers_.reset_peak();
  kept.take();
  EXPECT_EQ(buffers_.peak_bytes(), 200) << "two neighbours at a time";
  EXPECT_EQ(buffers_.live_bytes(), 0);
}

TEST_F(Derivations, MapsThatCostMoreThanAllowedAreKept) {
  Memory source = buffers_.allocate(100);
  Memory map = derived_from(source, Cost::kConvolution);
  Kept kept = keep(map, Cost::kElementwise);
  source.reset();
  map.reset();
  EXPECT_EQ(buffers_.live_bytes(), 200) << "the map, which has its source";
}

}  // namespace
}  // namespace headroom::predict
