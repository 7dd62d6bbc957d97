#include "parallel/predict/graph.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/parallel/predict/op_context_fixture.h"

namespace headroom::predict {
namespace {

class Graphs : public PassFixture {
 protected:
  // Adds a reader that gives the map a gradient of 64 bytes.
  void read(const Map& map, bool as_slice) {
    Graph::Node reader;
    reader.inputs = {map.node};
    reader.is_root = true;
    reader.backward = [this, as_slice](Gradient) {
      Graph::Outcome outcome;
      outcome.inputs = {{buffers_.allocate(64), as_slice}};
      return outcome;
    };
    graph_.add(std::move(reader));
  }
  int64_t peak_of_backward() {
    graph_.run_backward([](int64_t) {}, nullptr);
    return buffers_.peak_bytes();
  }
};

TEST_F(Graphs, ASecondGradientIsAddedInPlace) {
  Graph::Node maker;
  maker.output_bytes = 64;
  maker.backward = [this](Gradient gradient) {
    arrived_.push_back(gradient.memory->bytes);
    return Graph::Outcome();
  };
  Map shared;
  shared.node = graph_.add(std::move(maker));
  read(shared, false);
  read(shared, false);
  EXPECT_EQ(peak_of_backward(), 128);
  EXPECT_EQ(arrived_, std::vector<int64_t>{64});
  EXPECT_EQ(buffers_.live_bytes(), 0);
}

TEST_F(Graphs, ASliceIsAddedIntoANewBuffer) {
  const Map shared = made_map(1, 1);
  const int64_t bytes = shared.memory->bytes;
  const int64_t before = buffers_.live_bytes();
  read(shared, true);
  read(shared, true);
  EXPECT_EQ(peak_of_backward(), before + 64 + 64 + bytes);
  EXPECT_EQ(arrived_, std::vector<int64_t>{bytes});
}

TEST_F(Graphs, SavedBuffersAreFreedWhenTheirNodeHasRun) {
  Map map = made_map(1, 1);
  Memory saved = buffers_.allocate(1000);
  Map next;
  next.node = context().add({map}, {saved}, 0, true, [](Gradient gradient) {
    Graph::Outcome outcome;
    outcome.inputs = {std::move(gradient)};
    return outcome;
  });
  saved.reset();
  map.memory.reset();
  EXPECT_EQ(buffers_.live_bytes(), 1000);
  EXPECT_EQ(graph_.parameter_nodes(), (std::map<int64_t, int64_t>{{0, 1}}));
  read(next, false);
  std::vector<int64_t> layers;
  graph_.run_backward([&](int64_t layer) { layers.push_back(layer); }, nullptr);
  EXPECT_EQ(layers, std::vector<int64_t>{0});
  EXPECT_EQ(buffers_.live_bytes(), 0);
}

TEST_F(Graphs, ATensorWithoutAnotherHolderIsOwnedAsItIs) {
  Gradient alone{buffers_.allocate(64), false};
  const Buffer* const buffer = alone.memory.get();
  EXPECT_EQ(own(buffers_, alone, 64).get(), buffer);
  Gradient slice{buffers_.allocate(256), true};
  EXPECT_EQ(own(buffers_, slice, 64)->bytes, 64);
  Gradient shared{buffers_.allocate(64), false};
  const Memory held = shared.memory;
  EXPECT_NE(own(buffers_, shared, 64), held);
}

}  // namespace
}  // namespace headroom::predict
