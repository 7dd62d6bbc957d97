#include "tests/integration/fit_cells.h"

#include <array>
#include <mutex>

#include "configs/layers/model_table.h"
#include "configs/options.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/convolution_workspaces.h"
#include "parallel/collectives/backend.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"
#include "parallel/predict/phase_memory.h"
#include "tests/support/gray_images.h"
#include "tests/support/rank_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/test_device/test_device_api.h"

namespace headroom {
namespace {

const std::array<std::string, 5> kPolicyNames = {"keep", "lean", "recompute",
                                                 "offload", "mixed"};
const std::array<std::string, 5> kLayouts = {"one", "data", "zero3", "pipeline",
                                             "spatial"};

std::vector<layers::LayerCost> layers_of(const FitCell& cell) {
  return layers::layer_costs(layers::load_model_table(cell.model));
}

predict::MemoryRequest request_of(const FitCell& cell, const plan::Plan& plan) {
  predict::MemoryRequest request =
      predict::memory_request(cell.config(), plan, layers_of(cell));
  request.fetches_ahead = cell.between_hosts;
  return request;
}

RankOptions options_of(const FitCell& cell) {
  RankOptions options;
  if (cell.between_hosts) options.backend = RankBackend::kNetwork;
  options.operation_timeout = std::chrono::seconds(300);
  options.time_limit = std::chrono::seconds(900);
  return options;
}

// The device of a rank of the cell, and the communicator for its tensors.
struct Place {
  Place(const FitCell& cell, int rank, collectives::Communicator& world) {
    if (!cell.on_device) {
      communicator = &world;
      return;
    }
    device = test_compute_device(rank);
    device_host = collectives::make_device_host_communicator(
        world.split(0, rank), nullptr);
    communicator = device_host.get();
  }
  devices::ComputeDevice device;
  std::unique_ptr<collectives::Communicator> device_host;
  collectives::Communicator* communicator = nullptr;
};

}  // namespace

std::string FitCell::name() const {
  return std::filesystem::path(model).stem().string() + " " +
         std::to_string(image_size) + " x" + std::to_string(micro_batch) + " " +
         policy + " " + layout +
         (layout == "one" || split == 2 ? "" : " in " + std::to_string(split)) +
         (more_boxes > 0 ? " crowded" : "") +
         (freeze > 0 ? " frozen " + std::to_string(freeze) : "") +
         (between_hosts ? " between hosts" : "") +
         (precision == "fp32" ? "" : " " + precision) +
         (teacher.empty() ? "" : " taught by " + teacher) +
         (on_device ? " on device" : "") + (cuda_graphs ? " graphs" : "") +
         (deep ? " deep" : "") +
         (batch == 0 ? "" : " of " + std::to_string(batch));
}

configs::RunConfig FitCell::config() const {
  configs::RunConfig config;
  config.cfg = model;
  config.image_height = config.image_width = image_size;
  config.micro_batch_size = micro_batch;
  config.batch_norm_group_size = micro_batch;
  // With a pipeline there are two micro-batches; with data ranks, one per rank.
  const bool is_whole = layout == "one" || layout == "spatial";
  config.global_batch_size = is_whole ? micro_batch : 2 * micro_batch;
  if (batch > 0) {
    config.global_batch_size = batch;
    config.batch_norm_group_size = 0;
  }
  config.activations = policy == "mixed" ? "keep" : policy;
  config.freeze = freeze;
  config.teacher = config.teacher_model = teacher;
  configs::set_from_text(config, *configs::find_key("precision"), precision);
  config.zero_stage = layout == "zero3" ? 3 : 0;
  if (layout != "one")
    config.layout = plan::parse_layout((layout == "zero3" ? "data" : layout) +
                                       "=" + std::to_string(split));
  config.synthetic_input = true;
  config.cuda_graphs = cuda_graphs;
  if (deep) config.value_range = "0,65535";
  if (on_device) config.device = world_size() == 1 ? "0" : "0,1";
  return config;
}

plan::Plan plan_of(const FitCell& cell) {
  plan::Plan plan =
      planner::plan_or_throw(cell.config(), cell.world_size(), layers_of(cell));
  if (cell.policy != "mixed") return plan;
  constexpr std::array kInTurn = {
      plan::ActivationPolicy::kKeep, plan::ActivationPolicy::kLean,
      plan::ActivationPolicy::kRecompute, plan::ActivationPolicy::kOffload};
  for (size_t layer = 0; layer < layers_of(cell).size(); ++layer)
    plan.activation_policies.push_back(kInTurn[layer % kInTurn.size()]);
  return plan;
}

int64_t predicted_bytes_of_all_ranks(const FitCell& cell) {
  int64_t sum = 0;
  for (const int64_t bytes :
       planner::predicted_peak_bytes(request_of(cell, plan_of(cell))))
    sum += bytes;
  return sum;
}

std::vector<FitMeasurement> measure(const FitCell& cell, int steps) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  const plan::Plan plan = plan_of(cell);
  predict::MemoryRequest known = request_of(cell, plan);
  // Captured micro-batches, and heads without anchors, reserve memory for this
  // number of boxes.
  known.labels.assumed_boxes_per_image += cell.more_boxes;
  std::mutex mutex;
  std::vector<FitMeasurement> all;
  run_ranks(
      cell.world_size(),
      [&](int rank, collectives::Communicator& world) {
        const Place place(cell, rank, world);
        activations::MemoryMeter& memory = place.device.memory();
        RankTraining training(cell.config(), plan, *place.communicator,
                              cell.more_boxes, place.device);
        for (int step = 1; step <= steps; ++step) {
          memory.reset_peak();
          training.step();
          const int64_t measured = memory.peak_bytes();
          predict::MemoryRequest request = known;
          request.step = training.shape();
          request.workspaces = &convolution_workspaces();
          const predict::MemoryEstimate estimate =
              predict::estimate_rank_memory(
                  request, plan::coordinates_of(plan.layout, rank));
          const std::scoped_lock lock(mutex);
          all.push_back({rank, step, estimate.total(), measured});
        }
      },
      options_of(cell));
  return all;
}

std::vector<PhaseMeasurement> measure_phases(
    const FitCell& cell, int64_t validation_images,
    const std::filesystem::path& folder) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  plan::Plan plan = plan_of(cell);
  plan.validation_images = validation_images;
  predict::MemoryRequest request = request_of(cell, plan);
  request.labels.assumed_boxes_per_image += cell.more_boxes;
  const labels::Dataset images =
      gray_images(folder, 2 * cell.config().global_batch_size, cell.image_size,
                  8 + cell.more_boxes, loader::kSyntheticClasses);
  std::mutex mutex;
  std::vector<PhaseMeasurement> all;
  run_ranks(
      cell.world_size(),
      [&](int rank, collectives::Communicator& world) {
        const auto note = [&](const memory::MemoryComparison& one) {
          const std::scoped_lock lock(mutex);
          all.push_back(
              {{rank, 0, one.predicted.total(), one.measured}, one.phase});
        };
        const plan::MeshCoordinates here =
            plan::coordinates_of(plan.layout, rank);
        const Place place(cell, rank, world);
        const memory::PhaseWatch start_up("start-up", place.device.memory());
        RankTraining training(cell.config(), plan, *place.communicator,
                              cell.more_boxes, place.device);
        note(start_up.compare(predict::estimate_start_up(request, here)));
        training.step();
        note(training.validate(request, images).memory);
        note(training.save(request, folder / "checkpoints"));
      },
      options_of(cell));
  return all;
}

std::vector<FitCell> fit_matrix(int64_t limit) {
  struct Model {
    std::string name;
    int64_t image_size;
    int64_t most_images;  // so that a test takes at most 15 minutes
  };
  const std::vector<Model> models = {{"yolov5n", 320, 8}, {"yolov5s", 320, 8},
                                     {"yolov5n", 640, 8}, {"yolov5m", 320, 8},
                                     {"yolov5s", 640, 8}, {"yolov5n", 1280, 8},
                                     {"yolov5l", 320, 8}};
  std::vector<FitCell> cells;
  size_t turn = 0;
  const auto add = [&](const Model& model, int64_t micro_batch, size_t policy,
                       size_t layout) {
    FitCell cell = {model.name,       model.image_size,
                    micro_batch,      kPolicyNames[policy],
                    kLayouts[layout], turn++ % 4 == 3 ? 300 : 0};
    if (predicted_bytes_of_all_ranks(cell) <= limit) cells.push_back(cell);
  };
  for (const Model& model : models)
    for (const int64_t micro_batch : {1, 2, 4, 8})
      for (size_t policy = 0; policy < kPolicyNames.size(); ++policy)
        add(model, micro_batch, policy,
            (policy + static_cast<size_t>(micro_batch) +
             static_cast<size_t>(model.image_size / 320) + turn / 20) %
                kLayouts.size());
  return cells;
}

}  // namespace headroom
