#include "parallel/planner/card_speed.h"

#include <algorithm>
#include <cmath>

namespace headroom::planner {
namespace {

// The card whose peaks are assumed for a card that the table lacks.
constexpr const char* kUsualCard = "A100 80GB";

}  // namespace

bool has_short_maps(const configs::RunConfig& config) {
  return config.precision == configs::Precision::kBf16 ||
         config.precision == configs::Precision::kFp16;
}

double CardSpeed::flops_for(const configs::RunConfig& config) const {
  if (has_short_maps(config)) return flops_per_second;
  // TF32 has half the speed of 16-bit types.
  return config.tf32 && has_tf32 ? flops_per_second / 2
                                 : float_flops_per_second;
}

CardSpeed card_speed(const configs::Instance& instance) {
  constexpr int kFirstWithTf32 = 80;
  return {.name = instance.gpu,
          .flops_per_second = instance.tensor_teraflops * 1e12,
          .float_flops_per_second = instance.float_teraflops * 1e12,
          .bytes_per_second = instance.memory_gigabytes_per_second * 1e9,
          .has_tf32 = instance.compute_capability >= kFirstWithTf32,
          .are_peaks_assumed = instance.are_peaks_assumed};
}

CardSpeed speed_of_card(const std::string& name) {
  if (const configs::Instance* const known = configs::known_card(name)) {
    return card_speed(*known);
  }
  CardSpeed card = card_speed(configs::find_card(kUsualCard));
  card.peaks_of = card.name;
  card.name = name;
  return card;
}

CardSpeed with_measurement(
    CardSpeed card, const configs::RunConfig& config,
    const std::vector<layers::LayerCost>& layers,
    const std::vector<configs::CardMeasurement>& measurements) {
  double parameters = 0;
  for (const layers::LayerCost& layer : layers) {
    parameters += static_cast<double>(layer.parameters);
  }
  if (parameters == 0) return card;
  const configs::CardMeasurement* nearest = nullptr;
  double least = 0;
  for (const configs::CardMeasurement& one : measurements) {
    if (one.card != card.name || one.precision != config.precision ||
        one.tf32 != config.tf32 || one.cuda_graphs != config.cuda_graphs) {
      continue;
    }
    const double distance =
        std::abs(std::log(static_cast<double>(one.parameters) / parameters));
    if (nearest != nullptr && distance >= least) continue;
    nearest = &one;
    least = distance;
  }
  if (nearest == nullptr) return card;
  card.time_scale = nearest->time_scale;
  card.seconds_beside_layers = nearest->seconds_beside_layers;
  card.measured = "on " + nearest->date + " with " + nearest->model;
  return card;
}

CardSpeed measured_speed(const CardSpeed& card,
                         const configs::RunConfig& config,
                         const std::vector<layers::LayerCost>& layers) {
  return with_measurement(card, config, layers,
                          configs::measurements_of(card.name));
}

std::string source_text(const CardSpeed& card) {
  if (!card.measured.empty()) return "its speed was measured " + card.measured;
  return "its speed is assumed" + (card.peaks_of.empty()
                                       ? ""
                                       : ", that of " + card.peaks_of +
                                             " (the table of cards lacks it)");
}

std::string source_note(const CardSpeed& card) {
  if (card.measured.empty() && card.peaks_of.empty()) return "";
  return "; " + card.name + ": " + source_text(card) + ", in plans";
}

}  // namespace headroom::planner
