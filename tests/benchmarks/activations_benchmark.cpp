// Measures the time that each activation policy costs and the memory that it
// saves. One process has a training under each policy, and under the planner's
// mixtures for limits between the policies. The trainings take turns step by
// step; each round gives the ratio of each step time to that of keep, and the
// median of these ratios is the result. The order changes from round to round.
//
//   benchmark_activations [--rounds N] [--img S] [--images N] [--cfg MODEL]
//                         [--parts 0.8,0.5] [--rows "lean 0-24"]… [--plot FILE]
//
// --parts: the limit of a mixture, as a share of the bytes that a step of keep
// adds to the bytes between steps. --rows: one more training, with the given
// policies for ranges of layers and keep for all others, to calibrate
// configs/layers/layer_cost.h. --plot: writes a PNG of time against bytes.
//
// "kept" is a ratio: the bytes held when backward begins, including the heads
// but not the loss, divided by the bytes that plain autograd keeps
// (tests/support/plain_autograd.h).
//
// Time is the processor time of one thread, so the time of other programs does
// not count, although their use of the caches slows this one down. The ratio of
// wall times is printed too. The bounds: "kept" at most 0.71, 0.36 and 0.20
// under keep, lean and recompute; time at most 1.15 of keep's for lean, 1.40
// for recompute, 1.10 for a mixture with half of the bytes, and 1.02 for keep
// with its memory traced. Exits with 1 if a bound is exceeded. Run it on a
// quiet machine.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/step_phase.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/plan/plan.h"
#include "tests/benchmarks/training_benchmark.h"
#include "tests/support/plain_autograd.h"
#include "tests/support/rank_training.h"
#include "worker/chart/line_chart.h"
#include "worker/data/codecs/image_writer.h"

namespace headroom {
namespace {

constexpr int kWarmUpRounds = 2;
constexpr size_t kTracedEvents = 200'000;

struct Request {
  int rounds = 15;
  int64_t image_size = 640;
  int64_t images = 1;
  std::string model = "yolov5s";
  std::vector<double> parts = {0.8, 0.65, 0.5, 0.4};
  std::vector<std::string> layers;
  std::string plot;
};

// Measures the activations that are held when the first backward of a step
// begins.
class KeptBytes final : public StepPhaseObserver {
 public:
  void begin_phase(StepPhase phase) override {
    if (phase != StepPhase::kBackward) return;
    constexpr auto kMaps = static_cast<size_t>(MemoryCategory::kActivations);
    bytes_ =
        activations::CountingAllocator::instance().live_by_category()[kMaps];
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};

constexpr double kNoBound = std::numeric_limits<double>::infinity();

struct Contender {
  std::string name;
  plan::Plan plan;
  double time_bound = kNoBound;  // ratio to keep's time
  double kept_bound = kNoBound;  // ratio to plain autograd's bytes
  bool is_traced = false;        // memory is traced, as with --memory-trace
  std::unique_ptr<RankTraining> training = nullptr;
  std::vector<double> seconds = {};  // the processor time of each step
  std::vector<double> wall_seconds = {};
  int64_t kept_bytes = 0;
  int64_t step_bytes = 0;  // the peak above the bytes between steps
};

configs::RunConfig config_of(const Request& request,
                             const std::string& policy) {
  configs::RunConfig config = synthetic_config(
      request.model, request.image_size, request.images, "data=1");
  config.activations = policy;
  return config;
}

// Parses "lean 0-4 recompute 5-9"; other layers have keep.
std::vector<plan::ActivationPolicy> policies_of(const std::string& text,
                                                size_t num_layers) {
  std::vector<plan::ActivationPolicy> policies(num_layers,
                                               plan::ActivationPolicy::kKeep);
  std::istringstream words(text);
  std::string name;
  size_t begin = 0, last = 0;
  char dash = 0;
  while (words >> name >> begin >> dash >> last) {
    const auto policy = plan::parse_activation_policy(name);
    HEADROOM_CHECK(policy && begin <= last && last < num_layers, text);
    for (size_t layer = begin; layer <= last; ++layer)
      policies[layer] = *policy;
  }
  HEADROOM_CHECK(words.eof(), text);
  return policies;
}

void run_step(Contender& contender, bool counts) {
  activations::CountingAllocator& memory =
      activations::CountingAllocator::instance();
  KeptBytes kept;
  activations::MemoryTimeline timeline(contender.is_traced ? kTracedEvents : 0);
  observe_step_phases(&kept);
  if (contender.is_traced) {
    timeline.resume(memory.live_by_category());
    memory.set_timeline(&timeline);
  }
  const int64_t between = memory.live_bytes();
  step::StepResult result;
  const std::clock_t start_ticks = std::clock();
  const double wall_seconds =
      seconds_of([&] { result = contender.training->step(); });
  const std::clock_t ticks = std::clock() - start_ticks;
  observe_step_phases(nullptr);
  memory.set_timeline(nullptr);
  HEADROOM_CHECK(result.attempt == 1, "a step that was tried again");
  contender.kept_bytes = kept.bytes();
  contender.step_bytes = std::max(contender.step_bytes,
                                  result.measured_peak_bytes.front() - between);
  if (!counts) return;
  contender.seconds.push_back(static_cast<double>(ticks) / CLOCKS_PER_SEC);
  contender.wall_seconds.push_back(wall_seconds);
}

double ratio_to(const std::vector<double>& seconds,
                const std::vector<double>& keep) {
  return median(Pairs{seconds, keep}.ratios());
}

double over(int64_t bytes, int64_t whole) {
  return static_cast<double>(bytes) / static_cast<double>(whole);
}

class Benchmark {
 public:
  explicit Benchmark(const Request& request) : request_(request) {}

  bool run() {
    const layers::ModelTable table = layers::load_model_table(request_.model);
    head_bytes_ =
        std::llround(
            layers::layer_costs(table).back().kept_elements_per_pixel *
            static_cast<double>(request_.image_size * request_.image_size *
                                request_.images)) *
        static_cast<int64_t>(sizeof(float));
    plain_bytes_ = plain_autograd_bytes(table, loader::kSyntheticClasses,
                                        request_.images, request_.image_size,
                                        request_.image_size, at::kFloat);
    add("keep", kNoBound, 0.71);
    add("lean", 1.15, 0.36);
    add("recompute", 1.40, 0.20);
    add("offload", kNoBound, kNoBound);
    add("keep", 1.02, kNoBound);
    contenders_.back().name = "keep, traced";
    contenders_.back().is_traced = true;
    for (Contender& contender : contenders_) start(contender);
    // The first step measures the bytes of keep; the limits of mixtures are
    // shares of these bytes.
    const int64_t between = bytes_between_steps();
    run_step(contenders_.front(), /*counts=*/false);
    for (const double part : request_.parts) add_mixture(part, between);
    for (const std::string& layers : request_.layers) {
      Contender contender{layers, contenders_.front().plan};
      contender.plan.activation_policies =
          policies_of(layers, table.layers.size());
      contenders_.push_back(std::move(contender));
    }
    for (Contender& contender : contenders_) {
      if (contender.training == nullptr) start(contender);
    }
    take_turns();
    const bool kept = report();
    if (!request_.plot.empty()) plot();
    return kept;
  }

 private:
  void add(const std::string& policy, double time_bound, double kept_bound) {
    contenders_.push_back({policy,
                           plan_of_synthetic_run(config_of(request_, policy)),
                           time_bound, kept_bound});
  }

  // Bytes that a training holds between steps: its state and input batch.
  int64_t bytes_between_steps() {
    const int64_t before =
        activations::CountingAllocator::instance().live_bytes();
    const Contender& keep = contenders_.front();
    const RankTraining training(config_of(request_, "keep"), keep.plan,
                                *alone_);
    return activations::CountingAllocator::instance().live_bytes() - before;
  }

  void add_mixture(double part, int64_t between) {
    configs::RunConfig config = config_of(request_, "auto");
    config.memory_limit =
        between +
        static_cast<int64_t>(
            part * static_cast<double>(contenders_.front().step_bytes));
    try {
      char name[32];
      std::snprintf(name, sizeof name, "planned for %.2f", part);
      contenders_.push_back(
          {name, plan_of_synthetic_run(config), part == 0.5 ? 1.10 : kNoBound});
    } catch (const Error& error) {
      std::printf("a part of %.2f: %s\n", part, error.what());
    }
  }

  void start(Contender& contender) {
    contender.training = std::make_unique<RankTraining>(
        config_of(request_, "keep"), contender.plan, *alone_);
  }

  void take_turns() {
    for (int round = -kWarmUpRounds; round < request_.rounds; ++round) {
      for (size_t turn = 0; turn < contenders_.size(); ++turn) {
        const size_t first = static_cast<size_t>(round + kWarmUpRounds);
        run_step(contenders_[(first + turn) % contenders_.size()], round >= 0);
      }
    }
  }

  double time_ratio(const Contender& contender) const {
    return ratio_to(contender.seconds, contenders_.front().seconds);
  }
  double bytes_ratio(const Contender& contender) const {
    return over(contender.step_bytes, contenders_.front().step_bytes);
  }

  bool report() const {
    std::printf(
        "%s, %ld px, %ld images, %d rounds; kept over plain autograd's %.1f "
        "MiB; a step's bytes and time, medians, over keep's\n",
        request_.model.c_str(), static_cast<long>(request_.image_size),
        static_cast<long>(request_.images), request_.rounds,
        over(plain_bytes_, 1 << 20));
    bool all_kept = true;
    for (const Contender& contender : contenders_) {
      const double time = time_ratio(contender);
      const double kept =
          over(contender.kept_bytes + head_bytes_, plain_bytes_);
      const bool fine =
          time <= contender.time_bound && kept <= contender.kept_bound;
      all_kept = all_kept && fine;
      std::printf(
          "| %-16s | kept %5.3f | %7.1f MiB %5.3f | %7.1f ms %5.3f, wall "
          "%5.3f |%s %s\n",
          contender.name.c_str(), kept, over(contender.step_bytes, 1 << 20),
          bytes_ratio(contender), 1e3 * median(contender.seconds), time,
          ratio_to(contender.wall_seconds, contenders_.front().wall_seconds),
          fine ? "" : " MISSED",
          plan::activations_text(contender.plan.activation_policies).c_str());
    }
    return all_kept;
  }

  void plot() const {
    const auto text = [](double value) {
      char digits[16];
      std::snprintf(digits, sizeof digits, "%.2f", value);
      return std::string(digits);
    };
    chart::LineChart chart;
    chart.title = request_.model + ", " + std::to_string(request_.image_size) +
                  " px: a training step over keep's";
    chart.x = {"bytes", 1.15, text};
    chart.y = {"time", 1, text};
    for (const Contender& contender : contenders_) {
      const double time = time_ratio(contender);
      chart.y.end = std::max(chart.y.end, 1.1 * time);
      chart.lines.push_back({.name = contender.name,
                             .colour = chart::chart_colour(chart.lines.size()),
                             .width = 4,
                             .dotted = true,
                             .points = {{bytes_ratio(contender), time}}});
    }
    write_whole_file(
        request_.plot,
        codecs::encode_png_bytes(chart::draw_line_chart(chart, {1150, 660})));
  }

  const Request& request_;
  const std::unique_ptr<collectives::Communicator> alone_ =
      collectives::make_single_communicator();
  int64_t plain_bytes_ = 0;
  int64_t head_bytes_ = 0;  // freed when backward begins
  std::vector<Contender> contenders_;
};

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::become_worker();
  at::set_num_threads(1);
  headroom::Request request;
  CLI::App app("activation policies: bytes against time");
  app.add_option("--rounds", request.rounds)->check(CLI::PositiveNumber);
  app.add_option("--img", request.image_size);
  app.add_option("--images", request.images);
  app.add_option("--cfg", request.model);
  app.add_option("--parts", request.parts)->delimiter(',');
  app.add_option("--rows", request.layers)->take_all();
  app.add_option("--plot", request.plot);
  return headroom::run_benchmark(app, argc, argv, [&] {
    return headroom::Benchmark(request).run() ? 0 : 1;
  });
}
