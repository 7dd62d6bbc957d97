// Measures the throughput of the project's own kernels on a device in gigabytes
// per second, beside the throughput of a copy on the same card. The kernels are
// the four passes over maps of yolov5s at 640 px, pooling, the optimizer, the
// rendering of samples, and the conversion of the input.
//
//   benchmark_device_passes [--device 0] [--precision bf16] [--batch 16,64]
//                           [--repeats 20] [--scale 1] [--describe]
//
// The counted bytes are those that must be read and written once. If a map fits
// into the card's cache, its throughput may be higher than that of the card's
// memory. --scale divides the sides of the maps, for a machine without a card;
// --describe only prints the name of the device. Prints a line of JSON per
// kernel and shape.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/benchmarks/training_benchmark.h"
#include "tests/parallel/cuda/packed_samples.h"
#include "worker/kernels/device_kernels.h"
#include "worker/run/run_device.h"
#include "worker/step/device_prefetcher.h"
#include "worker/step/run_data.h"

namespace headroom {
namespace {

struct Shape {
  int64_t channels = 0;
  int64_t side = 0;
  // The gradient is a slice of the channels of a wider map, as for a block
  // whose output is concatenated.
  bool is_part = false;
};

// The blocks of yolov5s at 640 px: all nine sizes, and three blocks whose
// output is concatenated, so that their gradient is a slice.
const std::vector<Shape> kShapes = {
    {32, 320}, {64, 160},       {32, 160},      {128, 80},
    {64, 80},  {256, 40},       {128, 40},      {512, 20},
    {256, 20}, {32, 160, true}, {64, 80, true}, {128, 40, true}};

struct Request {
  configs::RunConfig config;
  std::vector<int64_t> batches = {16, 64};
  int repeats = 20;
  int64_t scale = 1;
  bool describes = false;
};

class Passes {
 public:
  explicit Passes(const Request& request)
      : request_(request),
        device_(run::choose_device(request.config, 0, 1).device),
        kernels_(*device_.kernels()),
        type_(step::map_type_of(request.config.precision)) {}

  void describe() const {
    const devices::DeviceInfo info =
        device_.api()->describe(device_.device().index());
    std::cout << nlohmann::ordered_json{{"device", info.name},
                                        {"uuid", info.uuid},
                                        {"compute_capability",
                                         info.compute_capability},
                                        {"multiprocessors",
                                         info.multiprocessors},
                                        {"total_bytes", info.total_bytes}}
                     .dump()
              << std::endl;
  }

  void run() const {
    for (const int64_t batch : request_.batches) {
      for (const Shape& shape : kShapes) passes(batch, shape);
    }
    for (const int64_t batch : request_.batches) pools(batch);
    optimizer();
    render();
    input();
  }

 private:
  // Returns the gigabytes per second of `work`, which moves `bytes`.
  double rate(double bytes, const std::function<void()>& work) const {
    for (int i = 0; i < 3; ++i) work();
    synchronize(device_);
    const double seconds = seconds_of([&] {
      for (int i = 0; i < request_.repeats; ++i) work();
      synchronize(device_);
    });
    return bytes * request_.repeats / seconds / 1e9;
  }

  void say(const std::string& kernel, const std::string& shape, double bytes,
           double copy, const std::function<void()>& work) const {
    const double own = rate(bytes, work);
    std::cout << nlohmann::ordered_json{{"kernel", kernel},
                                        {"shape", shape},
                                        {"MB", bytes / 1e6},
                                        {"GB_per_second", own},
                                        {"microseconds", bytes / own / 1e3},
                                        {"share_of_copy", own / copy}}
                     .dump()
              << std::endl;
  }

  at::Tensor map(int64_t batch, int64_t channels, int64_t side) const {
    return at::randn({batch, channels, side, side}, at::kFloat)
        .to(type_)
        .contiguous(at::MemoryFormat::ChannelsLast)
        .to(device_.device());
  }

  void passes(int64_t batch, const Shape& shape) const {
    const int64_t side = std::max<int64_t>(2, shape.side / request_.scale);
    const at::Tensor y = map(batch, shape.channels, side);
    const at::Tensor wide =
        map(batch, shape.channels * (shape.is_part ? 2 : 1), side);
    const at::Tensor dout = wide.narrow(1, 0, shape.channels);
    const at::Tensor out = map(batch, shape.channels, side);
    const at::ScalarType coefficients =
        type_ == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor weight =
        at::ones({shape.channels}, coefficients).to(device_.device());
    const at::Tensor bias =
        at::zeros({shape.channels}, coefficients).to(device_.device());
    const at::Tensor statistics =
        at::ones({1, 2, shape.channels}, at::kDouble).to(device_.device());
    const at::Tensor means =
        at::zeros({1, 2, shape.channels}, at::kDouble).to(device_.device());
    // Each pass itself writes the values that are derived from its sums.
    const kernels::GradientSumsResult gradients = {at::empty_like(weight),
                                                   at::empty_like(bias),
                                                   {},
                                                   at::empty_like(means)};
    const std::array groups = {kernels::MapGroup{
        .end = batch, .values = static_cast<double>(batch * side * side)}};
    const layers::ActivationFunction silu;
    const double bytes = static_cast<double>(y.nbytes());
    const std::string text =
        std::to_string(batch) + " x " + std::to_string(shape.channels) + " x " +
        std::to_string(side) + "^2" + (shape.is_part ? ", part of a map" : "");
    const double copy = rate(2 * bytes, [&] { out.copy_(y); });
    say("batch_statistics", text, bytes, copy, [&] {
      kernels_.batch_statistics(y, groups, /*epsilon=*/1e-3, {statistics, {}});
    });
    const kernels::NormedMap map = {y, groups, statistics, weight, bias, silu};
    say("normalise_and_activate", text, 2 * bytes, copy,
        [&] { kernels_.normalise_and_activate(map, out); });
    say("activation_gradient_sums", text, 2 * bytes, copy,
        [&] { kernels_.activation_gradient_sums(map, dout, gradients); });
    say("norm_gradient", text, 3 * bytes, copy,
        [&] { kernels_.norm_gradient(map, dout, means, out); });
  }

  // The pools of SPPF. Their output is concatenated, so the gradient is a
  // slice.
  void pools(int64_t batch) const {
    constexpr int64_t kChannels = 256, kWindow = 5;
    const int64_t side = std::max<int64_t>(2, 20 / request_.scale);
    const at::Tensor x = map(batch, kChannels, side);
    const at::Tensor dout =
        map(batch, 4 * kChannels, side).narrow(1, 0, kChannels);
    const at::Tensor out = at::empty_like(x);
    const at::Tensor choices = at::empty_like(x, at::kByte);
    const double bytes = static_cast<double>(2 * x.nbytes() + choices.nbytes());
    const std::string text = std::to_string(batch) + " x " +
                             std::to_string(kChannels) + " x " +
                             std::to_string(side) + "^2";
    const double copy =
        rate(2. * static_cast<double>(x.nbytes()), [&] { out.copy_(x); });
    say("max_pool", text, bytes, copy,
        [&] { kernels_.max_pool(x, kWindow, out, choices); });
    say("max_pool_gradient", text, bytes, copy,
        [&] { kernels_.max_pool_gradient(dout, choices, kWindow, out); });
  }

  // SGD with the averaged weights and the accumulated gradients: nine reads and
  // writes of 4 bytes.
  void optimizer() const {
    const int64_t size = 7'200'000 / request_.scale;
    const auto buffer = [&] { return at::randn({size}).to(device_.device()); };
    kernels::FlatBuffers buffers = {buffer(), buffer(), buffer(), buffer(),
                                    {},       buffer(), {}};
    const std::vector<kernels::FlatBufferRange> ranges = {
        {0, size / 2, 0}, {size / 2, size - size / 2, 1}};
    buffers.pieces = kernels_.make_pieces(device_.device(), ranges, size);
    kernels::CommitNumbers numbers;
    numbers.ends_step = numbers.steps_optimizer = true;
    for (auto& group : numbers.sgd) group = {0.01, 5e-4, 0.9, 1, false};
    numbers.average_weight = 1e-4;
    const kernels::CommitOutcome outcome = {.commits = 1, .clip = 1};
    const auto bytes_of = [](const auto& value) {
      at::Tensor bytes = at::empty({sizeof(value)}, at::kByte);
      std::memcpy(bytes.mutable_data_ptr(), &value, sizeof(value));
      return bytes;
    };
    const kernels::CommitPlace place = {
        device_.upload(bytes_of(numbers)),
        device_.upload(bytes_of(outcome).view(at::kDouble))};
    const double bytes = 9. * 4 * static_cast<double>(size);
    const double copy =
        rate(2. * static_cast<double>(buffers.parameters.nbytes()),
             [&] { buffers.first.copy_(buffers.parameters); });
    say("sgd_and_average", std::to_string(size), bytes, copy,
        [&] { kernels_.commit(buffers, place); });
  }

  void render() const {
    const cuda::PackedBatch batch =
        cuda::packed_batch(cuda::all_of_augmentation(), 3,
                           {0, cuda::ShapedImages::kHeight}, /*epochs=*/9);
    const at::Tensor region = batch.region().to(device_.device());
    const at::Tensor images = batch.images().to(device_.device());
    const at::Tensor other = at::empty_like(images);
    const double copy = rate(2. * static_cast<double>(images.nbytes()),
                             [&] { other.copy_(images); });
    say("render_samples", std::to_string(images.size(0)) + " x 96 x 144",
        static_cast<double>(region.nbytes() + images.nbytes()), copy,
        [&] { kernels_.render_samples(region, batch.starts, images); });
  }

  void input() const {
    const int64_t side = 640 / request_.scale;
    const at::Tensor images =
        (at::rand({request_.batches.back(), side, side, 3}) * 255)
            .to(at::kByte)
            .to(device_.device());
    const at::TensorOptions options = device_.options(type_);
    const double bytes = static_cast<double>(images.numel()) *
                         static_cast<double>(1 + c10::elementSize(type_));
    const at::Tensor other = at::empty_like(images);
    const double copy = rate(2. * static_cast<double>(images.nbytes()),
                             [&] { other.copy_(images); });
    say("network_input",
        std::to_string(images.size(0)) + " x 3 x " + std::to_string(side) +
            "^2",
        bytes, copy, [&] { step::network_input(images, options); });
  }

  const Request& request_;
  const devices::ComputeDevice device_;
  kernels::DeviceKernels& kernels_;
  const at::ScalarType type_;
};

int benchmark(int argc, char** argv) {
  Request request;
  request.config.device = "0";
  CLI::App app("the kernels' gigabytes a second on a device");
  app.add_option("--device", request.config.device);
  add_precision(app, request.config);
  app.add_option("--batch", request.batches)->delimiter(',');
  app.add_option("--repeats", request.repeats)->check(CLI::PositiveNumber);
  app.add_option("--scale", request.scale)->check(CLI::PositiveNumber);
  app.add_flag("--describe", request.describes);
  return run_benchmark(app, argc, argv, [&] {
    at::set_num_threads(1);
    const Passes passes(request);
    passes.describe();
    if (!request.describes) passes.run();
    return 0;
  });
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::activations::CountingAllocator::install();
  return headroom::benchmark(argc, argv);
}
