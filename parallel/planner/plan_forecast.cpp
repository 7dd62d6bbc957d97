#include "parallel/planner/plan_forecast.h"

#include <algorithm>

#include "configs/multi_scale.h"
#include "parallel/planner/plan_memory.h"

namespace headroom::planner {
namespace {

// Bytes read and written, forward and backward, per kept 16-bit element: a
// block reads and writes its two kept maps about 14 times.
constexpr double kBytesPerKeptElement = 14;

// Seconds on one card per pixel of one image: multiply-adds at the tensor
// cores' speed, with backward twice the forward, and maps at the memory's
// speed.
double seconds_on_card(const layers::LayerCost& layer,
                       const configs::RunConfig& config,
                       const CardSpeed& card) {
  const bool is_short = config.precision == configs::Precision::kBf16 ||
                        config.precision == configs::Precision::kFp16;
  // TF32 has half the speed, and its maps twice the bytes.
  const double widening = is_short ? 1 : 2;
  const double flops = 2 * 3 * layer.multiply_adds_per_pixel;
  const double bytes = kBytesPerKeptElement * layer.kept_elements_per_pixel;
  return widening * (flops / (kFlopsShare * card.flops_per_second) +
                     bytes / (kBytesShare * card.bytes_per_second));
}

// Sets each layer's work to seconds.
void time_layers(const configs::RunConfig& config, const plan::Plan& plan,
                 const std::vector<layers::LayerCost>& layers,
                 const ForecastBasis& basis, double pixels,
                 predict::TimeRequest& request) {
  if (!basis.images_per_second) {
    for (size_t i = 0; i < layers.size(); ++i) {
      // A leaner policy takes the same factor of time as on a processor core.
      const double kept = layer_work(layers[i], plan::ActivationPolicy::kKeep);
      const double leaner =
          kept == 0 ? 1 : layer_work(layers[i], policy_of(plan, i)) / kept;
      request.layers[i].work_per_pixel =
          leaner * seconds_on_card(layers[i], config, basis.card);
    }
    return;
  }
  double work = 0;
  for (const predict::TimedLayer& layer : request.layers) {
    work += layer.work_per_pixel;
  }
  for (predict::TimedLayer& layer : request.layers) {
    layer.work_per_pixel *= 1 / (*basis.images_per_second * work * pixels);
  }
}

}  // namespace

double loaded_images_per_second(const configs::RunConfig& config,
                                const std::vector<layers::LayerCost>& layers,
                                const ForecastBasis& basis) {
  if (config.synthetic_input || basis.cores_each == 0) return 0;
  constexpr double kPixels = 640 * 640;
  const int64_t most_threads =
      std::max<int64_t>(1, config.loader_threads) * basis.machines.cards_each;
  const auto cores =
      static_cast<double>(std::min(basis.cores_each, most_threads));
  return kSamplesPerCore * cores * kPixels /
         configs::mean_pixels(config, layers::largest_stride(layers));
}

predict::StepForecast plan_forecast(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers, const ForecastBasis& basis) {
  const int64_t stride = layers::largest_stride(layers);
  const bool is_nccl = plan.backend == plan::Backend::kNccl;
  predict::ForecastRequest request;
  request.step = time_request(config, plan, layers);
  request.machines = basis.machines;
  request.overlaps = is_nccl || basis.machines.number > 1;
  request.has_hierarchy = is_nccl;
  request.seconds_beside_layers =
      basis.images_per_second ? 0 : kSecondsBesideLayers;
  request.loaded_images_per_second =
      loaded_images_per_second(config, layers, basis);
  time_layers(config, plan, layers, basis, configs::mean_pixels(config, stride),
              request.step);
  // A multi-scale run uses each of its sizes equally often.
  const std::vector<configs::InputSize> sizes =
      configs::input_sizes(config, stride);
  const auto part = 1 / static_cast<double>(sizes.size());
  predict::StepForecast mean;
  for (const configs::InputSize& size : sizes) {
    request.step.image_height = size.height;
    request.step.image_width = size.width;
    const predict::StepForecast step = predict::forecast_step(request);
    mean.compute += part * step.compute;
    mean.communication += part * step.communication;
    mean.bubble += part * step.bubble;
    mean.input += part * step.input;
    mean.hidden_communication += part * step.hidden_communication;
    mean.ideal_seconds += part * step.ideal_seconds;
    mean.gradient_bytes = step.gradient_bytes;
    mean.gradient_sum = step.gradient_sum;
  }
  return mean;
}

}  // namespace headroom::planner
