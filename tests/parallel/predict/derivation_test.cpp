#include "parallel/predict/op_context.h"

#include <gtest/gtest.h>

namespace headroom::predict {
namespace {

class Derivations : public testing::Test {
 protected:
  // As large as the map that it is derived from.
  Memory derived_from(const Memory& source, Cost cost = Cost::kElementwise) {
    Memory map = timeline_.allocate(source->bytes);
    set_derivation(
        map, {source},
        [this, bytes = source->bytes](const std::vector<Memory>&) {
          return timeline_.allocate(bytes);
        },
        cost);
    return map;
  }

  MemoryTimeline timeline_;
};

TEST_F(Derivations, ADerivedMapFreesItsSource) {
  Memory source = timeline_.allocate(100);
  Memory map = derived_from(source);
  Kept kept = keep(map);
  map.reset();
  source.reset();
  EXPECT_EQ(timeline_.live_bytes(), 100) << "the source";
  timeline_.reset_peak();
  const Memory again = kept.take();
  EXPECT_EQ(timeline_.peak_bytes(), 200) << "while it is made";
  EXPECT_EQ(timeline_.live_bytes(), 100) << "the map";
}

TEST_F(Derivations, AMapWaitsForItsLastUse) {
  Memory source = timeline_.allocate(100);
  Memory map = derived_from(source);
  Kept first = keep(map), second = keep(map);
  map.reset();
  source.reset();
  first.take();
  EXPECT_EQ(timeline_.live_bytes(), 100);
  second.take();
  EXPECT_EQ(timeline_.live_bytes(), 0);
}

TEST_F(Derivations, AMapThatIsStillHeldIsUsed) {
  const Memory source = timeline_.allocate(100);
  const Memory map = derived_from(source);
  Kept kept = keep(map);
  timeline_.reset_peak();
  EXPECT_EQ(kept.take(), map);
  EXPECT_EQ(timeline_.peak_bytes(), 200);
}

TEST_F(Derivations, DerivedSourcesAreMadeAgainToo) {
  Memory source = timeline_.allocate(100);
  Memory middle = derived_from(source);
  Memory map = derived_from(middle);
  Kept kept = keep(map);
  map.reset();
  middle.reset();
  source.reset();
  EXPECT_EQ(timeline_.live_bytes(), 100) << "the source alone";
  timeline_.reset_peak();
  kept.take();
  EXPECT_EQ(timeline_.peak_bytes(), 200) << "two neighbours at a time";
  EXPECT_EQ(timeline_.live_bytes(), 0);
}

TEST_F(Derivations, MapsThatCostMoreThanAllowedAreKept) {
  Memory source = timeline_.allocate(100);
  Memory map = derived_from(source, Cost::kConvolution);
  Kept kept = keep(map, Cost::kElementwise);
  source.reset();
  map.reset();
  EXPECT_EQ(timeline_.live_bytes(), 200) << "the map, which has its source";
}

}  // namespace
}  // namespace headroom::predict
