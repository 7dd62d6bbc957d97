// Training on a device equals training on the CPU. The test device computes
// with the CPU's kernels, in memory that the host cannot access: a test ends if
// the host reads a tensor of the device. Batch norm and the loss's rows use the
// source text of the CUDA plugin's kernels, whose sums have another order. So
// results are equal within 1e-9, not bit for bit.
#include <ATen/ops/abs.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/max.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/collectives/backend.h"
#include "parallel/predict/memory_request.h"
#include "tests/support/gray_images.h"
#include "tests/support/rank_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/state_bytes.h"
#include "tests/support/test_device/test_device_api.h"
#include "tests/support/test_device/test_graph.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/kernels/cpu/cell_sums.h"
#include "worker/run/run_device.h"

namespace headroom::step {
namespace {

// Whether the tests use the test device. If HEADROOM_DEVICE_PLUGIN is set, as
// on a machine with a GPU (deploy/local/gpu_tests.sh), they use the cards of
// that plugin, which ranks share.
bool is_test_device() {
  return std::getenv("HEADROOM_DEVICE_PLUGIN") == nullptr;
}

devices::ComputeDevice device_of(int rank) {
  if (is_test_device()) return test_compute_device(rank);
  configs::RunConfig config;
  config.device = "0";
  config.share_devices = true;
  return run::choose_device(config, 0, 1).device;
}

struct Setting {
  std::string layout = "data=1";
  int ranks = 1;
  int zero_stage = 0;
  std::string activations = "keep";
  configs::Precision precision = configs::Precision::kFp64;
  configs::OptimizerKind optimizer = configs::OptimizerKind::kSgd;
  bool cuda_graphs = false;
  int64_t micro_batch = 0;
  std::string model = "yolov5n";
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.layout << " ZeRO " << setting.zero_stage;
}

configs::RunConfig config_of(const Setting& setting) {
  configs::RunConfig config = small_synthetic_run(setting.layout);
  config.cfg = setting.model;
  config.precision = setting.precision;
  config.zero_stage = setting.zero_stage;
  config.activations = setting.activations;
  config.optimizer = setting.optimizer;
  config.cuda_graphs = setting.cuda_graphs;
  config.micro_batch_size = setting.micro_batch;
  config.batch_norm_group_size = setting.micro_batch;
  config.epochs = 3;
  return config;
}

// The training curve as rank 0 reports it.
struct Curve {
  std::vector<double> loss, gradient_norm;
  std::vector<at::Tensor> state;  // on the CPU, if the rank is whole
};

// One rank that trains on the host or on a device of its own.
struct Rank {
  Rank(const configs::RunConfig& config, const plan::Plan& plan,
       collectives::Communicator& world, bool on_device)
      : device_host(collectives::make_device_host_communicator(
            world.split(0, world.rank()), nullptr)),
        training(
            config, plan, *device_host, /*more_boxes_per_image=*/7,
            on_device ? device_of(world.rank()) : devices::ComputeDevice()) {}

  std::unique_ptr<collectives::Communicator> device_host;
  RankTraining training;
};

// `sparse_step` has fewer boxes than the other steps; -1 means that no step
// has.
Curve train(const Setting& setting, bool on_device, int steps = 3,
            int64_t sparse_step = -1) {
  const configs::RunConfig config = config_of(setting);
  const plan::Plan plan = plan_of_synthetic_run(config);
  Curve curve;
  run_ranks(setting.ranks, [&](int rank, collectives::Communicator& world) {
    Rank mine(config, plan, world, on_device);
    if (sparse_step >= 0) mine.training.add_boxes_at(sparse_step, -4);
    for (int step = 0; step < steps; ++step) {
      const StepResult result = mine.training.step();
      if (rank != 0) continue;
      curve.loss.push_back(result.loss);
      curve.gradient_norm.push_back(result.gradient_norm);
    }
    if (rank == 0) curve.state = copies_of(mine.training.state());
  });
  return curve;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  const double scale = at::max(at::abs(b)).item<double>();
  const double error = at::max(at::abs(a - b)).item<double>();
  return scale > 0 ? error / scale : error;
}

void expect_close_losses(const Curve& device, const Curve& cpu,
                         double of_losses, double of_norms) {
  ASSERT_EQ(device.loss.size(), cpu.loss.size());
  for (size_t step = 0; step < cpu.loss.size(); ++step) {
    EXPECT_NEAR(device.loss[step] / cpu.loss[step], 1, of_losses) << step;
    EXPECT_NEAR(device.gradient_norm[step] / cpu.gradient_norm[step], 1,
                of_norms)
        << step;
  }
}

void expect_close(const Curve& device, const Curve& cpu, double tolerance) {
  expect_close_losses(device, cpu, tolerance, tolerance);
  ASSERT_EQ(device.state.size(), cpu.state.size());
  for (size_t i = 0; i < cpu.state.size(); ++i) {
    EXPECT_LE(relative_error(device.state[i], cpu.state[i]), tolerance)
        << "buffer " << i;
  }
}

// How far a device's run may be from the CPU's. In float64 only the order of
// sums differs. In lower precisions, rounding moves both runs away from a
// run of higher precision, in different directions. A card's library may choose
// algorithms that round several times as much (in float32 by tiles of a
// Winograd transform). Batch norms over few numbers, as in these tests, magnify
// the difference.
struct Bound {
  double losses = 0;  // relative
  // Norms of the gradient, relative. In bfloat16 even the CPU's norm differs
  // from that of float32 by 0.1 after a step.
  double norms = 0;
  double roundings = 0;  // times the CPU's distance from `unrounded`
  configs::Precision unrounded = configs::Precision::kFp64;
};

Bound bound_of(configs::Precision precision) {
  return precision == configs::Precision::kFp32
             ? Bound{.losses = 0.01, .norms = 0.01, .roundings = 16}
             : Bound{.losses = 0.01,
                     .norms = 0.3,
                     .roundings = 2,
                     .unrounded = configs::Precision::kFp32};
}

void expect_apart_by_rounding(const Curve& device, const Curve& cpu,
                              const Curve& unrounded, const Bound& bound) {
  expect_close_losses(device, cpu, bound.losses, bound.norms);
  ASSERT_EQ(device.state.size(), cpu.state.size());
  for (size_t i = 0; i < cpu.state.size(); ++i) {
    EXPECT_LE(
        relative_error(device.state[i], cpu.state[i]),
        bound.roundings * relative_error(cpu.state[i], unrounded.state[i]) +
            1e-6)
        << "buffer " << i;
  }
}

std::string suffix_of(configs::Precision precision) {
  switch (precision) {
    case configs::Precision::kFp32:
      return "Fp32";
    case configs::Precision::kBf16:
      return "Bf16";
    case configs::Precision::kFp16:
      return "Fp16";
    default:
      return "";
  }
}

std::string name_of(const testing::TestParamInfo<Setting>& info) {
  const Setting& setting = info.param;
  std::string name = setting.layout + "Zero" +
                     std::to_string(setting.zero_stage) + setting.activations +
                     to_string(setting.optimizer) +
                     suffix_of(setting.precision);
  if (setting.micro_batch > 0) {
    name += "MicroBatch" + std::to_string(setting.micro_batch);
  }
  if (setting.model != "yolov5n") name += setting.model;
  std::erase(name, '=');
  return name;
}

class DeviceTraining : public testing::TestWithParam<Setting> {
 protected:
  static void SetUpTestSuite() {
    device_of(0);  // must come before LibTorch is used
    activations::CountingAllocator::install();
    activations::install_saved_tensor_policies();
  }
};

TEST_P(DeviceTraining, EqualsTheCpu) {
  const Setting& setting = GetParam();
  const Curve device = train(setting, true), cpu = train(setting, false);
  if (setting.precision == configs::Precision::kFp64) {
    expect_close(device, cpu, 1e-9);
    return;
  }
  const Bound bound = bound_of(setting.precision);
  Setting unrounded = setting;
  unrounded.precision = bound.unrounded;
  expect_apart_by_rounding(device, cpu, train(unrounded, false), bound);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, DeviceTraining,
    testing::Values(Setting{}, Setting{.precision = configs::Precision::kFp32},
                    Setting{.precision = configs::Precision::kBf16},
                    Setting{.precision = configs::Precision::kFp16},
                    Setting{.optimizer = configs::OptimizerKind::kAdamW},
                    Setting{.activations = "lean"},
                    Setting{.activations = "recompute"},
                    Setting{.activations = "offload"},
                    Setting{.layout = "data=2", .ranks = 2},
                    Setting{.layout = "data=2", .ranks = 2, .zero_stage = 1},
                    Setting{.layout = "data=2", .ranks = 2, .zero_stage = 2},
                    Setting{.layout = "data=2", .ranks = 2, .zero_stage = 3},
                    Setting{.layout = "pipeline=2", .ranks = 2},
                    Setting{.layout = "spatial=2", .ranks = 2}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    WithoutAnchors, DeviceTraining,
    testing::Values(
        Setting{.model = "yolov8n"},
        Setting{.precision = configs::Precision::kBf16, .model = "yolov8n"},
        Setting{.activations = "recompute", .model = "yolov5nu"},
        Setting{.layout = "spatial=2", .ranks = 2, .model = "yolov8n"}),
    name_of);

// Training with graphs equals training without them, before and after the
// capture, which happens when a shape occurs for the third time. If sums have a
// fixed order, it is equal to the bit.
class CapturedTraining : public DeviceTraining {};

TEST_P(CapturedTraining, IsTheTrainingWithoutGraphs) {
  Setting setting = GetParam();
  // The labels of this step are not those of the captured step.
  constexpr int64_t kSparseStep = 4;
  const Curve plain = train(setting, true, 6, kSparseStep);
  EXPECT_NE(plain.loss, train(setting, true, 6).loss);
  setting.cuda_graphs = true;
  const int64_t replays = TestGraph::replays();
  const Curve captured = train(setting, true, 6, kSparseStep);
  if (!is_test_device()) {
    const bool is_exact = setting.precision == configs::Precision::kFp64;
    const Bound bound = bound_of(setting.precision);
    expect_close_losses(captured, plain, is_exact ? 1e-9 : bound.losses,
                        is_exact ? 1e-9 : bound.norms);
    return;
  }
  EXPECT_GE(TestGraph::replays() - replays, 4) << "one in each of 4 steps";
  EXPECT_EQ(captured.loss, plain.loss);
  EXPECT_EQ(captured.gradient_norm, plain.gradient_norm);
  expect_same_state(captured.state, plain.state);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, CapturedTraining,
    testing::Values(Setting{}, Setting{.precision = configs::Precision::kBf16},
                    Setting{.layout = "data=2",
                            .ranks = 2,
                            .zero_stage = 1,
                            .micro_batch = 2}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Slow, CapturedTraining,
    testing::Values(Setting{.precision = configs::Precision::kFp16},
                    Setting{.precision = configs::Precision::kBf16,
                            .model = "yolov8n"},
                    Setting{.activations = "lean"},
                    Setting{.activations = "recompute"},
                    Setting{.micro_batch = 2}),
    name_of);

class OneDevice : public DeviceTraining {};

// A folder that is removed at the end of the test.
struct Folder {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("headroom-device-" + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST_F(OneDevice, ACheckpointGoesFromTheDeviceToTheCpuAndBack) {
  const Folder folder;
  const configs::RunConfig config = config_of({});
  const plan::Plan plan = plan_of_synthetic_run(config);
  const auto world = collectives::make_single_communicator();
  Rank device(config, plan, *world, true);
  device.training.step();
  device.training.step();
  checkpoint::save_checkpoint(folder.path, device.training.state(), nullptr,
                              "{}", 1);
  for (const bool on_device : {false, true}) {
    Rank other(config, plan, *world, on_device);
    checkpoint::load_newest_checkpoint(folder.path, other.training.state(),
                                       nullptr);
    expect_same_state(copies_of(other.training.state()),
                      copies_of(device.training.state()));
  }
}

TEST_F(OneDevice, ValidationEqualsTheCpus) {
  const Folder folder;
  const configs::RunConfig config = config_of({});
  const plan::Plan plan = plan_of_synthetic_run(config);
  const labels::Dataset images =
      gray_images(folder.path, 6, 64, 4, loader::kSyntheticClasses);
  predict::MemoryRequest request = predict::memory_request(
      config, plan, layers::layer_costs(layers::load_model_table(config.cfg)));
  const auto world = collectives::make_single_communicator();
  const auto validated = [&](bool on_device) {
    Rank rank(config, plan, *world, on_device);
    rank.training.step();
    return rank.training.validate(request, images).result;
  };
  const validation::ValidationResult device = validated(true),
                                     cpu = validated(false);
  EXPECT_EQ(device.images, 6);
  EXPECT_EQ(device.labels, cpu.labels);
  for (size_t i = 0; i < kNumLossTerms; ++i) {
    EXPECT_NEAR(device.losses[i], cpu.losses[i], 1e-9);
  }
  EXPECT_NEAR(device.map50, cpu.map50, 1e-6);
}

// Wherever in forward or backward the device is out of memory, the step is
// retried with the same result.
TEST_F(OneDevice, OutOfMemoryCostsNothingButTime) {
  if (!is_test_device()) GTEST_SKIP() << "faults are the test device's";
  const configs::RunConfig config = config_of({});
  const plan::Plan plan = plan_of_synthetic_run(config);
  const auto world = collectives::make_single_communicator();
  TestDeviceMemory& memory = TestDeviceMemory::of(0);
  const auto step_failing_at = [&](int64_t allocation, int64_t* taken) {
    Rank rank(config, plan, *world, true);
    const int64_t before = memory.allocations();
    memory.fail_allocation(allocation);
    const StepResult result = rank.training.step();
    memory.fail_allocation(0);
    if (taken != nullptr) *taken = memory.allocations() - before;
    return result;
  };
  int64_t allocations = 0;
  const StepResult expected = step_failing_at(0, &allocations);
  EXPECT_EQ(expected.attempt, 1);
  EXPECT_GT(expected.measured_peak_bytes.front(), 0);
  for (const int64_t tenth : {1, 3, 5, 7, 8}) {
    SCOPED_TRACE(tenth);
    const StepResult result =
        step_failing_at(allocations * tenth / 10, nullptr);
    EXPECT_EQ(result.attempt, 2);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.gradient_norm, expected.gradient_norm);
    ASSERT_FALSE(result.events.empty());
    EXPECT_EQ(result.events.front().kind, EventKind::kOutOfMemory);
    EXPECT_NE(result.events.front().detail_json.find("asked_bytes"),
              std::string::npos);
  }
}

// If memory runs out during capture or replay, the step is retried without
// graphs, with the same result. Graphs are captured again later, and are freed
// with the trainer.
TEST_F(OneDevice, OutOfMemoryWithGraphs) {
  if (!is_test_device()) GTEST_SKIP() << "faults are the test device's";
  Setting setting;
  const Curve plain = train(setting, true, 5);
  setting.cuda_graphs = true;
  const configs::RunConfig config = config_of(setting);
  const plan::Plan plan = plan_of_synthetic_run(config);
  const auto world = collectives::make_single_communicator();
  TestDeviceMemory& memory = TestDeviceMemory::of(0);
  const int64_t before = memory.live_bytes();
  using Place = std::pair<size_t, int64_t>;
  for (const auto& [failing, allocation] :
       {Place{2, 1}, Place{2, 100}, Place{3, 40}}) {
    SCOPED_TRACE(testing::Message()
                 << "step " << failing << ", allocation " << allocation);
    {
      Rank rank(config, plan, *world, true);
      for (size_t step = 0; step < plain.loss.size(); ++step) {
        if (step == failing) memory.fail_allocation(allocation);
        const StepResult result = rank.training.step();
        EXPECT_EQ(result.attempt,
                  step == failing && memory.pending_failure() == 0 ? 2 : 1);
        memory.fail_allocation(0);
        EXPECT_EQ(result.loss, plain.loss[step]) << step;
        EXPECT_EQ(result.gradient_norm, plain.gradient_norm[step]) << step;
        EXPECT_EQ(TestGraph::captures_underway(0), 0);
      }
    }
    EXPECT_EQ(memory.live_bytes(), before);
  }
}

// If a capture fails anywhere, in forward, in backward or at its end, it is
// ended and released. The step runs without it in the same attempt, and so do
// the steps that follow. Another trainer captures again.
TEST_F(OneDevice, AFailedCaptureTrainsWithoutGraphs) {
  if (!is_test_device()) GTEST_SKIP() << "faults are the test device's";
  Setting setting;
  const Curve plain = train(setting, true, 4);
  setting.cuda_graphs = true;
  const configs::RunConfig config = config_of(setting);
  const plan::Plan plan = plan_of_synthetic_run(config);
  const auto world = collectives::make_single_communicator();
  TestDeviceMemory& memory = TestDeviceMemory::of(0);
  const int64_t before = memory.live_bytes();
  // Counts the pieces of work in a whole capture.
  constexpr int64_t kNever = 1'000'000'000;
  TestGraph::fail_capture(kNever);
  train(setting, true, 3);
  const int64_t pieces = kNever - TestGraph::pending_failure();
  TestGraph::fail_capture(0);
  ASSERT_GT(pieces, 100);
  for (const int64_t piece : {int64_t{1}, pieces / 2, pieces}) {
    SCOPED_TRACE(piece);
    Rank rank(config, plan, *world, true);
    std::vector<std::string> said;
    for (size_t step = 0; step < plain.loss.size(); ++step) {
      if (step == 2) TestGraph::fail_capture(piece);
      const StepResult result = rank.training.step();
      EXPECT_EQ(TestGraph::pending_failure(), 0) << "no capture was that long";
      EXPECT_EQ(result.attempt, 1);
      EXPECT_EQ(result.loss, plain.loss[step]) << step;
      EXPECT_EQ(result.gradient_norm, plain.gradient_norm[step]) << step;
      for (const memory::StepEvent& event : result.events) {
        if (event.kind == EventKind::kCudaGraphs) said.push_back(event.reason);
      }
      EXPECT_EQ(TestGraph::captures_underway(0), 0);
      memory.release_caches();
    }
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said[0].find("operation not permitted"), std::string::npos)
        << said[0];
  }
  EXPECT_EQ(memory.live_bytes(), before);
  const int64_t replays = TestGraph::replays();
  EXPECT_EQ(train(setting, true, 4).loss, plain.loss);
  EXPECT_GT(TestGraph::replays(), replays);
}

// A step with more matches than the graph has room for runs without the graph,
// between steps that are replayed.
TEST_F(OneDevice, AStepWithTooManyMatchesRunsBesideTheGraph) {
  if (!is_test_device()) GTEST_SKIP() << "replays are the test device's";
  constexpr int64_t kCrowded = 4, kSteps = 6;
  Setting setting;
  const auto world = collectives::make_single_communicator();
  std::vector<double> losses[2];
  int64_t replays = 0;
  std::vector<std::string> said;
  for (const bool graphs : {false, true}) {
    setting.cuda_graphs = graphs;
    const configs::RunConfig config = config_of(setting);
    Rank rank(config, plan_of_synthetic_run(config), *world, true);
    rank.training.add_boxes_at(kCrowded, /*boxes=*/100);
    const int64_t before = TestGraph::replays();
    for (int64_t step = 0; step < kSteps; ++step) {
      const StepResult result = rank.training.step();
      losses[graphs ? 1 : 0].push_back(result.loss);
      for (const memory::StepEvent& event : result.events) {
        said.push_back(event.reason);
      }
    }
    replays = TestGraph::replays() - before;
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(replays, 3) << "steps 2, 3 and 5";
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[1].find("more targets than its graph has room for"),
            std::string::npos)
      << said[1];
}

// The device's memory is counted by category, both the memory that is kept
// between steps and the memory of a step. All of it is freed at the end.
TEST_F(OneDevice, MemoryIsCountedAndGivenBack) {
  if (!is_test_device()) GTEST_SKIP() << "counts are the test device's";
  const int64_t before = TestDeviceMemory::of(0).live_bytes();
  {
    const configs::RunConfig config = config_of({});
    const auto world = collectives::make_single_communicator();
    Rank rank(config, plan_of_synthetic_run(config), *world, true);
    const StepResult first = rank.training.step();
    const StepResult second = rank.training.step();
    EXPECT_EQ(second.live_bytes, first.live_bytes);
    EXPECT_GE(second.live_bytes.front(), resident_bytes(rank.training.state()));
    const activations::CategoryBytes peaks =
        TestDeviceMemory::of(0).peak_by_category();
    for (const MemoryCategory category :
         {MemoryCategory::kParameters, MemoryCategory::kGradients,
          MemoryCategory::kOptimizer, MemoryCategory::kAverage,
          MemoryCategory::kActivations, MemoryCategory::kLoss}) {
      EXPECT_GT(peaks[static_cast<size_t>(category)], 0) << name_of(category);
    }
  }
  EXPECT_EQ(TestDeviceMemory::of(0).live_bytes(), before);
}

// Cells are summed in float64. To convert them, a device copies only a few
// samples at a time.
TEST_F(OneDevice, CellsAreSummedWithoutACopyOfTheMap) {
  if (!is_test_device()) GTEST_SKIP() << "counts are the test device's";
  constexpr int64_t kSamples = 16, kMiB = int64_t{1} << 20;
  const at::Tensor x = at::randn({kSamples, 16, 128, 128})
                           .contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor there = x.to(device_of(0).device());
  TestDeviceMemory& memory = TestDeviceMemory::of(0);
  for (const bool is_product : {false, true}) {
    const at::Tensor other = is_product ? x : at::Tensor();
    const at::Tensor other_there = is_product ? there : at::Tensor();
    memory.reset_peak();
    const int64_t before = memory.live_bytes();
    const at::Tensor sums = kernels::cell_sums(there, other_there);
    EXPECT_LE(memory.peak_bytes() - before, 8 * kMiB + kMiB / 4)
        << "the map has 16 MiB, its copy 32";
    EXPECT_LT(
        sums.cpu().sub(kernels::cell_sums(x, other)).abs().max().item<double>(),
        1e-9);
  }
}

// The copies are made beside the first stream, while the next step computes.
TEST(DeviceTraining, CopiesForPeersAreThoseOfTheirStep) {
  Setting setting{.layout = "data=2", .ranks = 2};
  for (setting.zero_stage = 1; setting.zero_stage <= 3; ++setting.zero_stage) {
    const configs::RunConfig config = config_of(setting);
    const plan::Plan plan = plan_of_synthetic_run(config);
    run_ranks(2, [&](int, collectives::Communicator& world) {
      Rank mine(config, plan, world, /*on_device=*/true);
      TrainingState& state = mine.training.state();
      checkpoint::PeerReplicas copies(*mine.device_host, 1, state);
      mine.training.before_vote([&] { copies.settle(); });
      checkpoint::HostStateSnapshot before;
      for (int step = 0; step < 3; ++step) {
        mine.training.step();
        copies.after_commit();
        checkpoint::HostStateSnapshot now =
            checkpoint::hold_state(state, /*newest_line=*/"");
        // The newest version, and the one before, over which nothing was
        // copied.
        for (const auto& version : copies.take()) {
          const auto& expected =
              version.counters.committed_steps == step + 1 ? now : before;
          for (const checkpoint::HeldPart& part : version.parts) {
            for (const checkpoint::HeldPart& whole : expected.parts) {
              if (part.buffer != whole.buffer || part.layer != whole.layer ||
                  part.begin < whole.begin ||
                  part.begin + part.values.numel() >
                      whole.begin + whole.values.numel()) {
                continue;
              }
              EXPECT_TRUE(at::equal(
                  part.values, whole.values.narrow(0, part.begin - whole.begin,
                                                   part.values.numel())))
                  << part.buffer << " of layer " << part.layer;
            }
          }
        }
        before = std::move(now);
      }
    });
  }
}

// All tests above rely on this property of the test device.
TEST(TestDevice, TheHostCannotTouchItsMemory) {
  if (!is_test_device()) GTEST_SKIP() << "another device is under test";
  const c10::Device device = test_compute_device().device();
  const at::Tensor tensor = at::ones({16}).to(device);
  EXPECT_EQ(tensor.sum().item<float>(), 16);
  EXPECT_DEATH(
      {
        const volatile float first = *tensor.const_data_ptr<float>();
        std::exit(first == 1 ? 0 : 1);
      },
      "");
  EXPECT_THROW(tensor.add(at::ones({16})), c10::Error);
}

}  // namespace
}  // namespace headroom::step
