#include "worker/checkpoint/checkpoint.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"

namespace headroom::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlan = "{}";

class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints() {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  static std::unique_ptr<step::TrainingState> make_state(int64_t classes = 3,
                                                         uint64_t seed = 0) {
    step::TrainingStateOptions options;
    options.num_classes = classes;
    options.seed = seed;
    return std::make_unique<step::TrainingState>(
        layers::load_model_table("yolov5n"), options);
  }

  static void fill(step::TrainingState& state, int64_t steps) {
    for (const step::TrainingState::Buffer& buffer : state.buffers()) {
      for (size_t slot = 0; slot < buffer.flat_buffer->slots().size(); ++slot) {
        buffer.flat_buffer->view(slot, *buffer.flat).uniform_(-1, 1);
      }
    }
    state.counters = {
        steps, steps / 2,      steps - 1,         0.5, 3, 4, {2, 0.1, 0.2, 0.3},
        {},    {0.1, 1.0 / 3}, {37, ~uint64_t{0}}};
  }

  static void expect_equal(step::TrainingState& a, step::TrainingState& b) {
    const auto left = a.buffers();
    const auto right = b.buffers();
    for (size_t i = 0; i < left.size(); ++i) {
      EXPECT_TRUE(at::equal(*left[i].flat, *right[i].flat)) << left[i].name;
    }
    EXPECT_EQ(a.counters.committed_steps, b.counters.committed_steps);
    EXPECT_EQ(a.counters.optimizer_steps, b.counters.optimizer_steps);
    EXPECT_EQ(a.counters.last_optimizer_step, b.counters.last_optimizer_step);
    EXPECT_EQ(a.counters.best_fitness, b.counters.best_fitness);
    EXPECT_EQ(a.counters.best_epoch, b.counters.best_epoch);
    EXPECT_EQ(a.counters.recorded_epochs, b.counters.recorded_epochs);
    EXPECT_EQ(a.counters.meter.steps, b.counters.meter.steps);
    EXPECT_EQ(a.counters.meter.means, b.counters.meter.means);
    EXPECT_EQ(a.counters.class_maps, b.counters.class_maps);
    EXPECT_EQ(a.counters.data, b.counters.data);
  }

  static std::string refusal(const fs::path& folder,
                             step::TrainingState& state) {
    try {
      load_newest_checkpoint(folder, state, nullptr);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
      return error.what();
    }
    return "";
  }

  static void flip_byte(const fs::path& path, int64_t offset) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(offset);
    const char byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(offset);
    file.put(byte);
  }

  fs::path folder_ = fs::path(HEADROOM_BUILD_DIR) / "tests" / "checkpoints";
};

TEST_F(Checkpoints, ComeBackBitForBit) {
  auto saved = make_state();
  fill(*saved, 12);
  EXPECT_EQ(save_checkpoint(folder_, *saved, nullptr, kPlan, 2),
            folder_ / "step-12");
  auto loaded = make_state(3, 7);
  EXPECT_EQ(load_newest_checkpoint(folder_, *loaded, nullptr).folder,
            folder_ / "step-12");
  expect_equal(*saved, *loaded);
}

TEST_F(Checkpoints, OnlyTheNewestAreKept) {
  auto state = make_state();
  for (const int64_t step : {3, 9, 10}) {
    fill(*state, step);
    save_checkpoint(folder_, *state, nullptr, kPlan, 2);
  }
  EXPECT_FALSE(fs::exists(folder_ / "step-3"));
  EXPECT_TRUE(fs::exists(folder_ / "step-9"));
  EXPECT_TRUE(fs::exists(folder_ / "step-10"));
}

TEST_F(Checkpoints, ADamagedOneIsNamedAndTheOneBeforeIsUsed) {
  auto older = make_state();
  fill(*older, 4);
  save_checkpoint(folder_, *older, nullptr, kPlan, 2);
  auto newer = make_state();
  fill(*newer, 8);
  save_checkpoint(folder_, *newer, nullptr, kPlan, 2);
  flip_byte(folder_ / "step-8" / "state.safetensors", 100'000);

  auto loaded = make_state();
  const LoadedCheckpoint result =
      load_newest_checkpoint(folder_, *loaded, nullptr);
  EXPECT_EQ(result.folder, folder_ / "step-4");
  ASSERT_EQ(result.damaged.size(), 1u);
  EXPECT_NE(result.damaged[0].find("is damaged: its digest is"),
            std::string::npos)
      << result.damaged[0];
  expect_equal(*older, *loaded);
  EXPECT_TRUE(fs::exists(folder_ / "step-8.damaged"));
}

TEST_F(Checkpoints, AnUnfinishedOneDoesNotCount) {
  auto state = make_state();
  fill(*state, 4);
  save_checkpoint(folder_, *state, nullptr, kPlan, 2);
  fs::create_directories(folder_ / "step-9");
  std::ofstream(folder_ / "step-9" / "state.safetensors") << "half";
  auto loaded = make_state();
  EXPECT_EQ(load_newest_checkpoint(folder_, *loaded, nullptr).folder,
            folder_ / "step-4");
}

TEST_F(Checkpoints, NoneAtAllIsRefused) {
  auto state = make_state();
  EXPECT_NE(refusal(folder_, *state).find("there is none at all"),
            std::string::npos);
}

TEST_F(Checkpoints, AnotherModelsShapesAreRefusedWithBoth) {
  auto saved = make_state(3);
  fill(*saved, 4);
  save_checkpoint(folder_, *saved, nullptr, kPlan, 2);
  auto other = make_state(5);
  const std::string text = refusal(folder_, *other);
  EXPECT_NE(text.find("model.24.m.0.weight"), std::string::npos) << text;
  EXPECT_NE(text.find("[24, 64, 1, 1]"), std::string::npos) << text;
  EXPECT_NE(text.find("[30, 64, 1, 1]"), std::string::npos) << text;
}

// The file of the state is whole, but its manifest is not the saved one.
TEST_F(Checkpoints, AManifestThatWasChangedIsRefused) {
  auto saved = make_state();
  fill(*saved, 4);
  save_checkpoint(folder_, *saved, nullptr, kPlan, 2);
  const fs::path file = folder_ / "step-4" / "MANIFEST.json";
  std::string text;
  {
    std::ifstream manifest(file, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(manifest), {});
  }
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    std::ofstream(file, std::ios::binary) << changed;
    auto state = make_state();
    return refusal(folder_, *state);
  };
  EXPECT_NE(with("\"committed_steps\": 4", "\"committed_steps\": 5")
                .find("MANIFEST.json is damaged: its digest is"),
            std::string::npos);
  EXPECT_NE(with("\"schema\": 2", "\"schema\": 1").find("is damaged"),
            std::string::npos);
  EXPECT_NE(with("manifest_xxh3_128", "manifest_xxh3_129")
                .find("its own digest is missing"),
            std::string::npos);
  EXPECT_NE(with("  \"counters\"", "\t \"counters\"").find("is damaged"),
            std::string::npos);
  EXPECT_EQ(with("{", "{"), "");  // unchanged
}

TEST_F(Checkpoints, AForeignManifestIsRefusedWithoutACrash) {
  for (const std::string text :
       {"", "{", "[]", "{\"schema\": 99}", "{\"schema\": 1}",
        "{\"schema\": 1, \"files\": 3}",
        "{\"schema\": 1, \"files\": [{\"name\": \"../../x\"}]}"}) {
    fs::create_directories(folder_ / "step-5");
    std::ofstream(folder_ / "step-5" / "MANIFEST.json") << text;
    auto state = make_state();
    EXPECT_NE(refusal(folder_, *state).find("MANIFEST.json"), std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace headroom::checkpoint
