#include "worker/run/float16_check.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/text.h"
#include "parallel/base/utf8.h"
#include "parallel/collectives/gather.h"
#include "worker/loss/detection_loss.h"
#include "worker/loss/device_loss.h"
#include "worker/model/layer_graph.h"
#include "worker/optim/loss_scale.h"
#include "worker/step/run_data.h"
#include "worker/step/step_gradients.h"
#include "worker/validation/validate.h"

namespace headroom::run {
namespace {

constexpr int64_t kMostPixels = 320;
constexpr int64_t kImages = 2;
constexpr int64_t kBoxes = 8;  // of each image
constexpr double kLossTolerance = 0.01;
constexpr double kNormTolerance = 0.1;
constexpr size_t kMostText = 255;  // bytes of an error that ranks exchange

struct Pass {
  double loss = 0, norm = 0;
  bool is_finite() const { return std::isfinite(loss) && std::isfinite(norm); }
};

// The run's model on the device, with images of `side` pixels and their boxes.
class Trial {
 public:
  Trial(const RunContext& run, int64_t side)
      : device_(run.device),
        model_(run.data.table, run.data.num_classes(), at::kFloat,
               run.config.seed) {
    for (const model::NamedTensor& entry : model_.state()) {
      if (entry.role == model::TensorRole::kConstant) continue;
      *entry.tensor = entry.tensor->detach().to(device_.device());
      entry.tensor->requires_grad_(entry.is_parameter());
    }
    const loader::LoaderOptions options =
        step::loader_options(run.config, model_);
    side = layers::rounded_image_size(side, options.stride);
    gains_ = validation::loss_gains(run.config, model_, options,
                                    run.data.class_weights);
    images_ = at::rand({kImages, options.bands, side, side},
                       at::detail::createCPUGenerator(run.config.seed))
                  .contiguous(at::MemoryFormat::ChannelsLast);
    std::vector<loss::LabelRow> labels;
    for (int64_t i = 0; i < kImages * kBoxes; ++i) {
      const double place = (static_cast<double>(i % kBoxes) + 0.5) / kBoxes;
      labels.push_back({.image = i / kBoxes,
                        .class_index = i % model_.num_classes(),
                        .cx = place,
                        .cy = 1 - place,
                        .w = 0.2,
                        .h = 0.3});
    }
    targets_ = options.assign(labels, side, side);
  }

  // Forward and backward with images and maps of this type.
  Pass pass(at::ScalarType type, double scale) {
    model::StepContext context;
    context.training = true;
    context.groups = {{0, kImages, kImages}};
    const std::vector<at::Tensor> heads =
        model_.forward(device_.upload(images_.to(type)), context);
    std::vector<loss::HeadSize> sizes;
    loss::GlobalCounts counts;
    counts.images = kImages;
    for (size_t level = 0; level < heads.size(); ++level) {
      sizes.push_back(loss::size_of(heads[level]));
      counts.matches.push_back(targets_[level].size());
    }
    loss::PackedTargets packed = loss::pack_targets(targets_, sizes);
    packed.bytes = device_.upload(packed.bytes);
    const at::Tensor scales =
        device_.upload(loss::detection_scales(sizes, counts, gains_, scale));
    at::Tensor total =
        loss::detection_loss(heads, packed, scales, gains_).total;
    total.backward();
    Pass result{.loss = total.to(at::kCPU).item<double>() / scale};
    double squares = 0;
    for (const model::NamedTensor& entry : model_.state()) {
      at::Tensor& gradient = entry.tensor->mutable_grad();
      if (!gradient.defined()) continue;
      const at::Tensor own = gradient.to(at::kCPU).to(at::kDouble);
      squares += own.mul(own).sum().item<double>();
      gradient.reset();
    }
    result.norm = std::sqrt(squares) / scale;
    return result;
  }

 private:
  const devices::ComputeDevice device_;
  model::LayerGraph model_;
  loss::LossGains gains_;
  at::Tensor images_;
  std::vector<loss::LevelTargets> targets_;
};

bool are_near(double value, double expected, double tolerance) {
  return std::abs(value - expected) <= tolerance * std::abs(expected);
}

std::string shown(const Pass& pass) {
  return "a loss of " + significant_text(pass.loss, 5) +
         " and a gradient of norm " + significant_text(pass.norm, 4);
}

Float16Check compare(Trial trial) {
  const Pass expected = trial.pass(at::kFloat, 1);
  optim::LossScale scale;
  Pass half = trial.pass(at::kHalf, scale.value);
  while (std::isfinite(half.loss) && !half.is_finite() && scale.can_fall()) {
    scale.note_overflow();
    half = trial.pass(at::kHalf, scale.value);
  }
  const std::string summary =
      "float16 gives " + shown(half) + " at a loss scale of " +
      yaml::exact_text(scale.value) + ", float32 " + shown(expected);
  const bool passes = half.is_finite() &&
                      are_near(half.loss, expected.loss, kLossTolerance) &&
                      are_near(half.norm, expected.norm, kNormTolerance);
  return {passes ? "" : summary, summary};
}

// The check of this rank's device. Takes smaller images if memory is short.
Float16Check check_here(const RunContext& run) {
  const int64_t asked =
      std::max(run.config.image_height, run.config.image_width);
  int64_t side = std::min(asked, kMostPixels);
  for (;; side /= 2) {
    try {
      return compare(Trial(run, side));
    } catch (const c10::OutOfMemoryError& error) {
      if (side < 64) {
        return {cat("the memory is too short for it: ",
                    error.what_without_backtrace()),
                ""};
      }
    } catch (const c10::AcceleratorError&) {
      throw;  // the card is in an unknown state
    } catch (const c10::Error& error) {
      // A library has no float16 for this card, for example.
      return {error.what_without_backtrace(), ""};
    }
    step::release_failed_graph();
    run.device.memory().release_caches();
  }
}

}  // namespace

bool is_float16_check_due(const RunContext& run) {
  return run.config.checks_float16 &&
         run.config.precision == configs::Precision::kFp16 &&
         run.config.resume.empty() && run.assignment.resume_steps == 0 &&
         !run.device.is_cpu();
}

Float16Check check_float16(const RunContext& run,
                           collectives::Communicator& world) {
  run.faults.begin(configs::Fault::Phase::kCheck, 0);
  Float16Check check = check_here(run);
  if (run.faults.is_not_a_number()) check.error = "a NaN was injected";
  if (const auto report = run.faults.end()) {
    run.client.report_event({.event = EventKind::kFault,
                             .rank = run.rank,
                             .reason = step::describe(*report)});
  }
  run.device.memory().release_caches();
  const std::vector<std::string> errors =
      collectives::gather_bytes(world, shortened(check.error, kMostText));
  const auto first = std::ranges::find_if_not(errors, &std::string::empty);
  check.error = first == errors.end()
                    ? ""
                    : cat("rank ", first - errors.begin(), ": ", *first);
  return check;
}

}  // namespace headroom::run
