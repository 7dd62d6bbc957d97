// The speed of a card for plans and forecasts: its peaks from the table of
// cards (configs/cards) times assumed shares of them, or times what
// `headroom plan --measure` found on such a card (configs/card_measurements.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "configs/card_measurements.h"
#include "configs/cluster_catalogue.h"
#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"

namespace headroom::planner {

// The shares of a card's peaks that training is assumed to reach.
inline constexpr double kFlopsShare = 0.4;
inline constexpr double kBytesShare = 0.6;
// Assumed seconds of a step on a card outside its layers: loss, optimizer, and
// kernel launches that do not overlap with other work.
inline constexpr double kSecondsBesideLayers = 2e-3;

// Whether the run's feature maps have 16 bits.
bool has_short_maps(const configs::RunConfig& config);

struct CardSpeed {
  // "NVIDIA H200": as in the table, or as the driver says if the table lacks
  // the card. "" if the card is unknown: then plans assume speed_of_card("").
  std::string name = {};
  // Peaks.
  double flops_per_second = 0;        // 16-bit tensor cores, dense
  double float_flops_per_second = 0;  // float32 without tensor cores
  double bytes_per_second = 0;        // memory bandwidth
  bool has_tf32 = true;  // whether --tf32 is computed on tensor cores
  // The card whose peaks these are, if the table lacks this card; else "".
  std::string peaks_of = {};
  bool are_peaks_assumed = false;  // not from a data sheet
  // Seconds of a model's layers, divided by those that the peaks and the shares
  // give.
  double time_scale = 1;
  double seconds_beside_layers = kSecondsBesideLayers;
  // "on 2026-11-30 with yolov5s"; "" if nothing was measured.
  std::string measured = {};

  bool is_known() const { return flops_per_second > 0; }
  // The peak in the run's precision.
  double flops_for(const configs::RunConfig& config) const;
};

// The speed of the machine's card.
CardSpeed card_speed(const configs::Instance& instance);

// The speed of a card by the name that its driver or the table gives. If the
// table lacks it, an A100's peaks are assumed.
CardSpeed speed_of_card(const std::string& name);

// `card` with the measurement of its kind that fits the run best: the same
// number format, and the model with the most similar number of parameters.
// Without one, `card` as it is.
CardSpeed with_measurement(
    CardSpeed card, const configs::RunConfig& config,
    const std::vector<layers::LayerCost>& layers,
    const std::vector<configs::CardMeasurement>& measurements);

// with_measurement() of the files in the user's cache. Throws Error (exit 2) if
// the card's file is wrong.
CardSpeed measured_speed(const CardSpeed& card,
                         const configs::RunConfig& config,
                         const std::vector<layers::LayerCost>& layers);

// Where the speed comes from: "its speed was measured on 2026-11-30 with
// yolov5s"; "its speed is assumed".
std::string source_text(const CardSpeed& card);
// "; NAME: its speed ... in plans", for messages of a run; "" if the table has
// the card and nothing was measured, or if the card is unknown.
std::string source_note(const CardSpeed& card);

inline const std::vector<layers::LayerCost> kNoLayers;

// What is planned: a model's layers, and the card that computes them. The
// layers must outlive the object.
struct ModelOnCard {
  ModelOnCard(const std::vector<layers::LayerCost>& layers = kNoLayers,
              CardSpeed card = {})
      : layers(layers), card(std::move(card)) {}

  const std::vector<layers::LayerCost>& layers;
  CardSpeed card;  // unknown on the CPU
};

}  // namespace headroom::planner
