// Measures what cuDNN's first choice of an algorithm costs. Each convolution of
// a model's training step runs with the algorithm that the library's heuristics
// choose and with the fastest algorithm that the library finds by trials.
//
//   benchmark_conv_choices [--device 0] [--cfg yolov5s] [--img 640]
//                          [--batch 64] [--precision bf16] [--repeats 10]
//                          [--shapes 0]
//
// Prints a line of JSON per shape, the most expensive shape first (--shapes N:
// only the first N). A line has the number of convolutions of this shape, and
// the microseconds of the forward pass, of the gradient of the input and of the
// gradient of the weight, each by heuristics and by trials. The last line has
// the sums over all convolutions of the model.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/rand.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"
#include "tests/benchmarks/training_benchmark.h"
#include "tests/support/rank_training.h"
#include "worker/run/run_device.h"

namespace headroom {
namespace {

// A convolution of a step.
struct Convolution {
  std::vector<int64_t> input, weight, stride, padding, dilation;
  int64_t groups = 1;
  at::ScalarType type = at::kFloat;
  auto operator<=>(const Convolution&) const = default;
};

using Found = std::map<Convolution, int>;
// Null, or the convolutions of the step that is recorded.
Found* found = nullptr;

// Records the arguments of a call of aten::convolution.
std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& call) {
  if (std::string(call.name()) != "aten::convolution") return nullptr;
  const c10::ArrayRef<const c10::IValue> given = call.inputs();
  const at::Tensor& input = given[0].toTensor();
  Convolution one;
  one.input = input.sizes().vec();
  one.weight = given[1].toTensor().sizes().vec();
  one.stride = given[3].toIntVector();
  one.padding = given[4].toIntVector();
  one.dilation = given[5].toIntVector();
  one.groups = given[8].toInt();
  one.type = input.scalar_type();
  ++(*found)[one];
  return nullptr;
}

Found convolutions_of(const configs::RunConfig& config,
                      const run::ChosenDevice& chosen) {
  const auto alone = collectives::make_device_host_communicator(
      collectives::make_single_communicator(), nullptr);
  RankTraining training(config, plan_of_synthetic_run(config), *alone,
                        /*more_boxes_per_image=*/0, chosen.device);
  Found convolutions;
  found = &convolutions;
  const at::CallbackHandle watching = at::addGlobalCallback(
      at::RecordFunctionCallback(&note).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION}));
  training.step();
  at::removeCallback(watching);
  found = nullptr;
  return convolutions;
}

constexpr std::array kPasses = {"forward", "dgrad", "wgrad"};
using Seconds = std::array<double, kPasses.size()>;

class Timer {
 public:
  Timer(const devices::ComputeDevice& device, int repeats)
      : device_(device), repeats_(repeats) {}

  Seconds time(const Convolution& one, bool searches) const {
    at::globalContext().setBenchmarkCuDNN(searches);
    const at::TensorOptions options = device_.options(one.type);
    const auto layout = at::MemoryFormat::ChannelsLast;
    const at::Tensor input = at::rand(one.input, options).contiguous(layout);
    const at::Tensor weight = at::rand(one.weight, options).contiguous(layout);
    const std::vector<int64_t> none(one.stride.size(), 0);
    const auto forward = [&] {
      return at::convolution(input, weight, {}, one.stride, one.padding,
                             one.dilation, false, none, one.groups);
    };
    const at::Tensor gradient = forward();
    const auto backward = [&](bool of_input, bool of_weight) {
      at::convolution_backward(gradient, input, weight, c10::nullopt,
                               one.stride, one.padding, one.dilation, false,
                               none, one.groups, {of_input, of_weight, false});
    };
    return {time_of([&] { forward(); }),
            time_of([&] { backward(true, false); }),
            time_of([&] { backward(false, true); })};
  }

 private:
  double time_of(const std::function<void()>& pass) const {
    pass();  // if cuDNN has to search, it does so in this call
    synchronize(device_);
    return seconds_of([&] {
             for (int repeat = 0; repeat < repeats_; ++repeat) pass();
             synchronize(device_);
           }) /
           repeats_;
  }

  const devices::ComputeDevice& device_;
  const int repeats_;
};

struct Row {
  Convolution convolution;
  int count = 0;
  Seconds heuristics = {}, best = {};
  double all() const {
    double sum = 0;
    for (const double pass : heuristics) sum += pass;
    return count * sum;
  }
};

std::string text_of(const std::vector<int64_t>& sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    text += (text.empty() ? "" : "x") + std::to_string(size);
  }
  return text;
}

void add_times(nlohmann::ordered_json& line, const Seconds& heuristics,
               const Seconds& best) {
  for (size_t pass = 0; pass < kPasses.size(); ++pass) {
    const std::string name = kPasses[pass];
    line[name + "_us"] = 1e6 * heuristics[pass];
    line[name + "_best_us"] = 1e6 * best[pass];
    line[name + "_over_best"] = heuristics[pass] / best[pass];
  }
}

void print(std::vector<Row> rows, size_t shapes) {
  std::ranges::sort(rows, std::greater(), &Row::all);
  Seconds heuristics = {}, best = {};
  int count = 0;
  for (const Row& row : rows) {
    count += row.count;
    for (size_t pass = 0; pass < kPasses.size(); ++pass) {
      heuristics[pass] += row.count * row.heuristics[pass];
      best[pass] += row.count * row.best[pass];
    }
  }
  if (shapes != 0 && shapes < rows.size()) rows.resize(shapes);
  for (const Row& row : rows) {
    nlohmann::ordered_json line = {{"input", text_of(row.convolution.input)},
                                   {"weight", text_of(row.convolution.weight)},
                                   {"stride", text_of(row.convolution.stride)},
                                   {"convolutions", row.count}};
    add_times(line, row.heuristics, row.best);
    std::cout << line.dump() << '\n';
  }
  nlohmann::ordered_json line = {{"input", "all"},
                                 {"weight", ""},
                                 {"stride", ""},
                                 {"convolutions", count}};
  add_times(line, heuristics, best);
  std::cout << line.dump() << std::endl;
}

int benchmark(int argc, char** argv) {
  configs::RunConfig config = synthetic_config("yolov5s", 640, 64, "data=1");
  config.device = "0";
  config.activations = "keep";
  config.threads = 1;
  int repeats = 10;
  size_t shapes = 0;
  CLI::App app("convolutions by cuDNN's heuristics against the best");
  app.add_option("--device", config.device);
  add_network(app, config);
  app.add_option("--batch", config.global_batch_size);
  add_precision(app, config);
  app.add_option("--repeats", repeats)->check(CLI::PositiveNumber);
  app.add_option("--shapes", shapes);
  return run_benchmark(app, argc, argv, [&] {
    at::set_num_threads(config.threads);
    const run::ChosenDevice chosen = run::choose_device(config, 0, 1);
    const Found convolutions = convolutions_of(config, chosen);
    HEADROOM_CHECK(!convolutions.empty(), "the step has no convolution");
    const Timer timer(chosen.device, repeats);
    std::vector<Row> rows;
    for (const auto& [one, count] : convolutions) {
      rows.push_back(
          {one, count, timer.time(one, false), timer.time(one, true)});
    }
    print(std::move(rows), shapes);
    return 0;
  });
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::become_worker();
  return headroom::benchmark(argc, argv);
}
