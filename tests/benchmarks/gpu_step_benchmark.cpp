// Images per second of training steps on one device, loader left out: one batch
// of synthetic input, again and again.
//
//   benchmark_gpu_step [--device 0] [--cfg yolov5s] [--img 640] [--batch 64]
//                      [--precision bf16] [--from-host] [--tf32]
//                      [--cuda-graphs] [--cudnn-benchmark] [--steps 20]
//                      [--warm-up 10] [--windows 3] [--threads 1] [--wait]
//
// The batch lies on the device; --from-host sends it in each step, as a run
// does. --wait: a window for each line of standard input, so that programs on
// one card can take turns (gpu_step.py). Prints a line of JSON per window:
// images per second, the loss, what was measured and predicted at the peak.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/knobs.h"
#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/collectives/backend.h"
#include "parallel/plan/layout.h"
#include "parallel/predict/memory_request.h"
#include "tests/support/rank_training.h"
#include "worker/kernels/cpu/heap.h"
#include "worker/run/run_device.h"

namespace headroom {
namespace {

struct Request {
  configs::RunConfig config;
  std::string precision = "bf16";
  bool from_host = false;
  bool cudnn_benchmark = false;
  bool waits = false;
  int steps = 20;
  int warm_up = 10;
  int windows = 3;
  int threads = 1;
};

class Benchmark {
 public:
  explicit Benchmark(const Request& request)
      : request_(request),
        layers_(
            layers::layer_costs(layers::load_model_table(request.config.cfg))),
        plan_(plan_of_synthetic_run(request.config)),
        device_(run::choose_device(request.config, 0, 1).device),
        alone_(collectives::make_device_host_communicator(
            collectives::make_single_communicator(), nullptr)),
        training_(request.config, plan_, *alone_,
                  /*more_boxes_per_image=*/4, device_) {
    at::globalContext().setBenchmarkCuDNN(request.cudnn_benchmark);
    if (!request.from_host) training_.keep_batch_on_device();
    for (int step = 0; step < request.warm_up; ++step) training_.step();
  }

  void run() {
    std::string line;
    for (int window = 0; request_.waits ? !!std::getline(std::cin, line)
                                        : window < request_.windows;
         ++window) {
      std::cout << measure().dump() << std::endl;
    }
  }

 private:
  // Both ends of a window: the device has nothing left to do.
  void synchronize() const {
    if (device_.is_cpu()) return;
    c10::impl::getDeviceGuardImpl(device_.device().type())
        ->synchronizeDevice(device_.device().index());
  }

  nlohmann::json measure() {
    using Clock = std::chrono::steady_clock;
    synchronize();
    const Clock::time_point start = Clock::now();
    step::StepResult result;
    for (int step = 0; step < request_.steps; ++step) result = training_.step();
    synchronize();
    const std::chrono::duration<double> seconds = Clock::now() - start;
    const configs::RunConfig& config = request_.config;
    const double images = static_cast<double>(config.global_batch_size) *
                          static_cast<double>(request_.steps);
    return {{"cfg", config.cfg},
            {"img", config.image_height},
            {"batch", config.global_batch_size},
            {"precision", request_.precision},
            {"resident", !request_.from_host},
            {"cuda_graphs", config.cuda_graphs},
            {"loss", result.loss},
            {"seconds", seconds.count()},
            {"images_per_second", images / seconds.count()},
            {"flops_per_image", flops_per_image()},
            {"measured_peak_bytes", result.measured_peak_bytes.front()},
            {"predicted_peak_bytes", predicted_bytes()}};
  }

  // Convolutions, forward and backward: each is three products of one size.
  double flops_per_image() const {
    double multiply_adds = 0;
    for (const layers::LayerCost& layer : layers_)
      multiply_adds += layer.multiply_adds_per_pixel;
    const double pixels = static_cast<double>(request_.config.image_height) *
                          static_cast<double>(request_.config.image_width);
    return 3 * 2 * multiply_adds * pixels;
  }

  int64_t predicted_bytes() const {
    predict::MemoryRequest request =
        predict::memory_request(request_.config, plan_, layers_);
    request.step = training_.shape();
    return predict::estimate_rank_memory(request,
                                         plan::coordinates_of(plan_.layout, 0))
        .total();
  }

  const Request& request_;
  const std::vector<layers::LayerCost> layers_;
  const plan::Plan plan_;
  const devices::ComputeDevice device_;
  const std::unique_ptr<collectives::Communicator> alone_;
  RankTraining training_;
};

int benchmark(int argc, char** argv) {
  Request request;
  configs::RunConfig& config = request.config;
  config.cfg = "yolov5s";
  config.device = "0";
  config.synthetic_input = true;
  config.global_batch_size = 64;
  config.activations = "keep";
  config.layout = plan::parse_layout("data=1");
  CLI::App app("images per second of training steps on one device");
  app.add_option("--device", config.device);
  app.add_option("--cfg", config.cfg);
  app.add_option("--img", config.image_height);
  app.add_option("--batch", config.global_batch_size);
  app.add_option("--precision", request.precision);
  app.add_flag("--tf32", config.tf32);
  app.add_flag("--cuda-graphs", config.cuda_graphs);
  app.add_flag("--from-host", request.from_host);
  app.add_flag("--cudnn-benchmark", request.cudnn_benchmark);
  app.add_option("--steps", request.steps)->check(CLI::PositiveNumber);
  app.add_option("--warm-up", request.warm_up)->check(CLI::PositiveNumber);
  app.add_option("--windows", request.windows);
  app.add_option("--threads", request.threads)->check(CLI::PositiveNumber);
  app.add_flag("--wait", request.waits);
  CLI11_PARSE(app, argc, argv);
  config.image_width = config.image_height;
  try {
    config.threads = request.threads;
    at::set_num_threads(request.threads);
    configs::set_from_text(config, *configs::find_knob("precision"),
                           request.precision);
    Benchmark(request).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::kernels::keep_freed_memory();
  headroom::activations::CountingAllocator::install();
  headroom::activations::install_saved_tensor_policies();
  return headroom::benchmark(argc, argv);
}
