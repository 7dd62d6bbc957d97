// Measures the images per second of training steps on one device without the
// loader: all steps train on the same batch of synthetic input, whose matches
// are made beforehand.
//
//   benchmark_gpu_step [--device 0] [--cfg yolov5s] [--img 640] [--batch 64]
//                      [--precision bf16] [--activations keep] [--from-host]
//                      [--tf32] [--cuda-graphs] [--cudnn-benchmark]
//                      [--ghosts 8] [--cluster p5.48xlarge] [--ghost-blocks 16]
//                      [--steps 20] [--warm-up 10] [--windows 3] [--threads 1]
//                      [--wait] [--count] [--trace FILE]
//                      [--cell "batch=16,graphs"]...
//
// The batch is on the device; with --from-host each step copies it there, as a
// run does. --wait measures one window for each line of standard input, so that
// programs on one card can take turns (gpu_step.py). --trace runs one more step
// and writes it as LibTorch's profiler recorded it. --cell measures several
// settings in one process. Each setting is given by its changes: cfg, img,
// batch, precision, activations and ghosts have a value; graphs, host,
// benchmark, tf32 and count have none.
//
// --ghosts N measures the step of one rank of N. The other ranks are modelled
// as cards of machines of --cluster (tests/support/ghost_ranks); --batch is the
// batch of this rank. The first cell with the same setting and ghosts=1 is the
// reference of the cells with ghosts, and the start of a forecast; without
// --cell, such a cell is added and runs first.
//
// Prints a line of JSON per window: images per second, milliseconds of a step
// for the host and for the device, the loss, and the measured, predicted,
// reserved and simulated bytes at the peak. With ghosts, the line also has the
// ratio to one rank, the number of sums of a step, their modelled milliseconds,
// the milliseconds during which the device had no other work (exposed), the
// milliseconds for which the host waited, and the host's microseconds per sum.
// --count adds the launches and read-backs of one more step; the card is slower
// from then on, since its profiler stays active.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "configs/cluster_catalogue.h"
#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "configs/options.h"
#include "parallel/base/check.h"
#include "parallel/base/convolution_workspaces.h"
#include "parallel/collectives/backend.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/plan_time.h"
#include "parallel/predict/memory_request.h"
#include "tests/benchmarks/training_benchmark.h"
#include "tests/support/ghost_ranks/ghost_ranks.h"
#include "tests/support/rank_training.h"
#include "worker/run/run_device.h"

namespace headroom {
namespace {

struct Request {
  configs::RunConfig config;
  bool from_host = false;
  bool cudnn_benchmark = false;
  bool waits = false;
  bool counts = false;
  int64_t batch = 64;  // the number of this rank's images
  int ghosts = 1;      // number of ranks, including this one
  std::string cluster = "p5.48xlarge";
  int ghost_blocks = 16;
  std::string trace;
  int steps = 20;
  int warm_up = 10;
  int windows = 3;
  int threads = 1;
};

// Applies a word of --cell to the request.
void change(Request& request, const std::string& word) {
  const size_t equals = word.find('=');
  const std::string key = word.substr(0, equals);
  configs::RunConfig& config = request.config;
  if (equals == std::string::npos) {
    if (key == "graphs") {
      config.cuda_graphs = true;
    } else if (key == "host") {
      request.from_host = true;
    } else if (key == "benchmark") {
      request.cudnn_benchmark = true;
    } else if (key == "tf32") {
      config.tf32 = true;
    } else if (key == "count") {
      request.counts = true;
    } else {
      throw Error("benchmark", "--cell has no '" + key + "'",
                  "see the head of gpu_step_benchmark.cpp");
    }
    return;
  }
  const std::string value = word.substr(equals + 1);
  if (key == "cfg") {
    config.cfg = value;
  } else if (key == "img") {
    config.image_height = config.image_width = std::stol(value);
  } else if (key == "batch") {
    request.batch = std::stol(value);
  } else if (key == "ghosts") {
    request.ghosts = std::stoi(value);
  } else if (key == "activations") {
    config.activations = value;
  } else if (key == "precision") {
    configs::set_from_text(config, *configs::find_key("precision"), value);
  } else {
    throw Error("benchmark", "--cell has no '" + key + "'",
                "see the head of gpu_step_benchmark.cpp");
  }
}

Request changed(Request request, const std::string& cell) {
  std::istringstream words(cell);
  for (std::string word; std::getline(words, word, ',');) change(request, word);
  request.config.global_batch_size = request.batch * request.ghosts;
  request.config.layout =
      plan::parse_layout("data=" + std::to_string(request.ghosts));
  // A captured graph cannot wait for the batch-norm statistics of other ranks.
  request.config.batch_norm_group_size =
      request.config.cuda_graphs ? request.batch : 0;
  return request;
}

std::string precision_of(const configs::RunConfig& config) {
  return configs::value_text(config, *configs::find_key("precision"));
}

// Describes a setting without its number of ghosts.
std::string setting_of(const Request& request) {
  const configs::RunConfig& config = request.config;
  std::ostringstream text;
  text << config.cfg << ' ' << config.image_height << ' ' << request.batch
       << ' ' << precision_of(config) << ' ' << config.activations << ' '
       << config.tf32 << config.cuda_graphs << request.from_host
       << request.cudnn_benchmark;
  return text.str();
}

// The measured images per second of one rank, by setting.
using OneRankRates = std::map<std::string, double>;

// Returns null if there are no ghosts.
std::unique_ptr<GhostRanks> ghosts_of(const Request& request,
                                      const devices::ComputeDevice& device) {
  if (request.ghosts == 1) return nullptr;
  GhostRanks::Options options;
  options.size = request.ghosts;
  options.blocks = request.ghost_blocks;
  options.machines = planner::machines_of(
      configs::find_instance(request.cluster), request.ghosts);
  return std::make_unique<GhostRanks>(options, device);
}

std::unique_ptr<collectives::Communicator> world_of(GhostRanks* ghosts) {
  if (ghosts != nullptr) return ghosts->make_world();
  return collectives::make_device_host_communicator(
      collectives::make_single_communicator(), nullptr);
}

// The number of launches of a step, and of the copies that the host waits for.
struct StepCounts {
  int64_t launches = 0;
  int64_t reads = 0;
};

// Returns the counters of the tests' device; null for other devices and the
// CPU.
using TestLaunches = void (*)(int64_t* launches, int64_t* reads);
TestLaunches test_launches() {
  void* const plugin =
      dlopen(devices::device_plugin_path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (plugin == nullptr) return nullptr;
  return reinterpret_cast<TestLaunches>(
      dlsym(plugin, "headroom_test_launches"));
}

class Benchmark {
 public:
  Benchmark(const Request& request, const run::ChosenDevice& chosen,
            OneRankRates& one_rank)
      : request_(request),
        layers_(
            layers::layer_costs(layers::load_model_table(request.config.cfg))),
        plan_(plan_of_synthetic_run(request.config)),
        chosen_(chosen),
        one_rank_(one_rank),
        ghosts_(ghosts_of(request, chosen.device)),
        world_(world_of(ghosts_.get())),
        training_(request.config, plan_, *world_,
                  /*more_boxes_per_image=*/4, chosen.device) {
    at::Context& context = at::globalContext();
    context.setBenchmarkCuDNN(request.cudnn_benchmark);
    context.setAllowTF32CuDNN(request.config.tf32);
    context.setAllowTF32CuBLAS(request.config.tf32);
    training_.keep_batch();
    if (!request.from_host) training_.keep_batch_on_device();
    for (int step = 0; step < request.warm_up; ++step) training_.step();
    // The memory that cuDNN's trials need in the first steps is not part of a
    // step's memory.
    device().memory().reset_peak();
  }

  void run() {
    std::string line;
    for (int window = 0; request_.waits ? !!std::getline(std::cin, line)
                                        : window < request_.windows;
         ++window) {
      nlohmann::ordered_json figures = measure();
      const bool is_last = !request_.waits && window + 1 == request_.windows;
      if (is_last && (request_.counts || !request_.trace.empty())) {
        const StepCounts counts = count_step();
        figures["launches"] = counts.launches;
        figures["host_reads"] = counts.reads;
      }
      std::cout << figures.dump() << std::endl;
    }
  }

 private:
  const devices::ComputeDevice& device() const { return chosen_.device; }

  // An event in the card's stream; empty on a CPU, whose time is not measured
  // with events.
  std::optional<c10::Event> event() const {
    if (device().device().type() != c10::DeviceType::CUDA) return std::nullopt;
    c10::Event now(c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT);
    now.record(c10::impl::getDeviceGuardImpl(device().device().type())
                   ->getStream(device().device()));
    return now;
  }

  nlohmann::ordered_json measure() {
    synchronize(device());
    const std::optional<c10::Event> first = event();
    std::optional<c10::Event> last;
    step::StepResult result;
    const double seconds = seconds_of([&] {
      for (int step = 0; step < request_.steps; ++step) {
        result = training_.step();
      }
      last = event();
      synchronize(device());
    });
    const configs::RunConfig& config = request_.config;
    const double steps = request_.steps;
    const double images = static_cast<double>(request_.batch) * steps;
    // A rank with ghosts reports its own number multiplied by the number of
    // ranks.
    const int64_t measured =
        result.measured_peak_bytes.front() / request_.ghosts;
    nlohmann::ordered_json line = {
        {"cfg", config.cfg},
        {"img", config.image_height},
        {"batch", request_.batch},
        {"ghosts", request_.ghosts},
        {"precision", precision_of(config)},
        {"activations", config.activations},
        {"tf32", config.tf32},
        {"resident", !request_.from_host},
        {"cuda_graphs", config.cuda_graphs},
        {"cudnn_benchmark", request_.cudnn_benchmark},
        {"loss", result.loss},
        {"seconds", seconds},
        {"images_per_second", images / seconds},
        {"step_ms", seconds * 1e3 / steps},
        {"device_ms", nullptr},
        {"flops_per_image", flops_per_image()},
        {"measured_peak_bytes", measured},
        {"predicted_peak_bytes", memory_request().second},
        {"predicted_over_measured",
         static_cast<double>(memory_request().second) /
             static_cast<double>(measured)}};
    if (first) line["device_ms"] = first->elapsedTime(*last) / steps;
    if (!device().is_cpu()) add_device_memory(line);
    if (ghosts_ == nullptr) {
      one_rank_[setting_of(request_)] = images / seconds;
    } else {
      add_ghosts(line);
    }
    return line;
  }

  // Adds the cost that a step's sums have for this rank. It is measured in
  // separate steps, since the events that find the exposed time take time
  // themselves.
  void add_ghosts(nlohmann::ordered_json& line) {
    constexpr int kSteps = 3;
    const GhostRanks::Figures calls = ghosts_->take();
    ghosts_->measure_exposed(true);
    for (int step = 0; step < kSteps; ++step) training_.step();
    synchronize(device());
    ghosts_->measure_exposed(false);
    const GhostRanks::Figures figures = ghosts_->take();
    const auto milliseconds = [&](double seconds) {
      return 1e3 * seconds / kSteps;
    };
    const auto rate = one_rank_.find(setting_of(request_));
    line["ratio_to_one_rank"] = nullptr;
    if (rate != one_rank_.end()) {
      line["ratio_to_one_rank"] =
          line["images_per_second"].get<double>() / rate->second;
    }
    line["forecast_ratio"] = forecast_ratio(rate);
    line["sums"] = figures.sums / kSteps;
    line["held_ms"] = milliseconds(figures.held_seconds);
    line["exposed_ms"] = milliseconds(figures.exposed_seconds);
    line["host_wait_ms"] = milliseconds(figures.host_wait_seconds);
    line["issue_us"] = calls.sums == 0 ? 0
                                       : 1e6 * calls.issue_seconds /
                                             static_cast<double>(calls.sums);
  }

  // Adds the device's memory in addition to tensors, as measured and as
  // simulated.
  void add_device_memory(nlohmann::ordered_json& line) const {
    devices::DeviceApi& api = *device().api();
    const int index = device().device().index();
    const int64_t reserved = api.memory(index).peak_reserved_bytes();
    const int64_t simulated =
        memory::step_segments(memory_request().first, {}).planned.segment_bytes;
    line["context_bytes"] = chosen_.footprint.context;
    line["reserved_bytes"] = reserved;
    line["simulated_bytes"] = simulated;
    line["simulated_over_reserved"] =
        static_cast<double>(simulated) / static_cast<double>(reserved);
    line["driver_bytes"] = nullptr;
    const std::optional<devices::DeviceUse> use = api.use_of(index);
    if (use && use->own_bytes) line["driver_bytes"] = *use->own_bytes;
  }

  // The ratio that `headroom plan` forecasts for this plan on these machines
  // from the rate of one rank; null if that rate is unknown.
  nlohmann::ordered_json forecast_ratio(
      const OneRankRates::const_iterator& rate) const {
    if (rate == one_rank_.end()) return nullptr;
    return planner::plan_forecast(
               request_.config, plan_, layers_,
               {.machines = planner::machines_of(
                    configs::find_instance(request_.cluster), request_.ghosts),
                .images_per_second = rate->second,
                .card = {},
                .cores_each = 0})
        .efficiency();
  }

  // Runs one more step under LibTorch's profiler.
  StepCounts count_step() {
    using torch::autograd::profiler::ActivityType;
    const TestLaunches launches = test_launches();
    StepCounts counts;
    if (launches != nullptr) launches(&counts.launches, &counts.reads);
    std::set<ActivityType> activities = {ActivityType::CPU};
    if (device().device().type() == c10::DeviceType::CUDA) {
      activities.insert(ActivityType::CUDA);
    }
    const torch::profiler::impl::ProfilerConfig config(
        torch::profiler::impl::ProfilerState::KINETO);
    torch::autograd::profiler::prepareProfiler(config, activities);
    torch::autograd::profiler::enableProfiler(config, activities);
    training_.step();
    if (launches != nullptr) launches(&counts.launches, &counts.reads);
    synchronize(device());
    const auto profile = torch::autograd::profiler::disableProfiler();
    if (!request_.trace.empty()) profile->save(request_.trace);
    return launches != nullptr ? counts : counts_of(profile->events());
  }

  // Counts the launches and read-backs of CUDA.
  static StepCounts counts_of(
      const std::vector<torch::autograd::profiler::KinetoEvent>& events) {
    StepCounts counts;
    for (const auto& event : events) {
      const std::string name = event.name();
      if (event.deviceType() == c10::DeviceType::CUDA) {
        if (name.find("DtoH") != std::string::npos) ++counts.reads;
      } else if (name.starts_with("cu") &&
                 name.find("Launch") != std::string::npos) {
        ++counts.launches;
      }
    }
    return counts;
  }

  // The operations of convolutions, forward and backward; backward needs two
  // products of the same size as forward's one.
  double flops_per_image() const {
    double multiply_adds = 0;
    for (const layers::LayerCost& layer : layers_)
      multiply_adds += layer.multiply_adds_per_pixel;
    const double pixels = static_cast<double>(request_.config.image_height) *
                          static_cast<double>(request_.config.image_width);
    return 3 * 2 * multiply_adds * pixels;
  }

  // The shape of the newest step, and its predicted bytes.
  std::pair<predict::MemoryRequest, int64_t> memory_request() const {
    predict::MemoryRequest request =
        predict::memory_request(request_.config, plan_, layers_);
    request.step = training_.shape();
    request.labels = training_.labels();
    request.workspaces = &convolution_workspaces();
    const int64_t bytes = predict::estimate_rank_memory(
                              request, plan::coordinates_of(plan_.layout, 0))
                              .total();
    return {std::move(request), bytes};
  }

  const Request& request_;
  const std::vector<layers::LayerCost> layers_;
  const plan::Plan plan_;
  const run::ChosenDevice& chosen_;
  OneRankRates& one_rank_;
  const std::unique_ptr<GhostRanks> ghosts_;  // null if there are no ghosts
  const std::unique_ptr<collectives::Communicator> world_;
  RankTraining training_;
};

int benchmark(int argc, char** argv) {
  Request request;
  std::vector<std::string> cells;
  configs::RunConfig& config = request.config;
  config.cfg = "yolov5s";
  config.device = "0";
  config.synthetic_input = true;
  config.activations = "keep";
  CLI::App app("images per second of training steps on one device");
  app.add_option("--device", config.device);
  add_network(app, config);
  app.add_option("--batch", request.batch);
  add_precision(app, config);
  app.add_option("--activations", config.activations);
  app.add_flag("--tf32", config.tf32);
  app.add_flag("--cuda-graphs", config.cuda_graphs);
  app.add_flag("--from-host", request.from_host);
  app.add_flag("--cudnn-benchmark", request.cudnn_benchmark);
  app.add_option("--ghosts", request.ghosts)->check(CLI::PositiveNumber);
  app.add_option("--cluster", request.cluster);
  app.add_option("--ghost-blocks", request.ghost_blocks)
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", request.steps)->check(CLI::PositiveNumber);
  app.add_option("--warm-up", request.warm_up)->check(CLI::PositiveNumber);
  app.add_option("--windows", request.windows);
  app.add_option("--threads", request.threads)->check(CLI::PositiveNumber);
  app.add_option("--trace", request.trace);
  app.add_option("--cell", cells);
  app.add_flag("--wait", request.waits);
  app.add_flag("--count", request.counts);
  return run_benchmark(app, argc, argv, [&] {
    if (cells.empty()) {
      if (request.ghosts > 1) cells.push_back("ghosts=1");
      cells.push_back("");
    }
    config.threads = request.threads;
    at::set_num_threads(request.threads);
    const run::ChosenDevice chosen = run::choose_device(config, 0, 1);
    OneRankRates one_rank;
    for (const std::string& cell : cells) {
      const Request of_cell = changed(request, cell);
      chosen.device.memory().release_caches();
      Benchmark(of_cell, chosen, one_rank).run();
    }
    return 0;
  });
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::become_worker();
  return headroom::benchmark(argc, argv);
}
