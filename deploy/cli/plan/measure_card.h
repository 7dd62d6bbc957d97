// headroom plan --measure: trains a few steps on one card of this machine, and
// keeps their time for this plan and later ones (configs/card_measurements.h).
//
// headroom-worker trains alone (--standalone) on fixed random images, with a
// card's share of the batch and then with half of it, in a temporary folder.
//
// Errors: Error (exit 2) if nothing can be measured, 5 if the worker fails, 130
// if the user interrupts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "configs/card_measurements.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/cli/run_request.h"
#include "parallel/nvml/nvml.h"
#include "proto/reports.h"

namespace headroom::cli {

// The time that all steps may take together, starts of workers included.
inline constexpr int kSecondsToMeasure = 30;

// The card to measure: the first of --device, else the first of this machine.
// Throws Error if there is none, if a program computes on it, or if another
// flag of `line` contradicts --measure.
wire::NodeCard card_to_measure(const CommandLine& line,
                               const nvml::Nvml& driver);

// The time of a step with this number of images.
struct StepTime {
  int64_t images = 0;
  double seconds = 0;
};

// The median time of the steps in a run's steps.jsonl after the first ones,
// which are slower; nullopt if there are too few.
std::optional<double> median_step(const std::string& steps_jsonl);

// Fills in time_scale and seconds_beside_layers. `layer_seconds`: of one image,
// computed from the card's peaks. Without `smaller`, or if the smaller step is
// not the shorter one, all of a step's time counts as its layers'.
void fit_steps(const StepTime& larger, const std::optional<StepTime>& smaller,
               double layer_seconds, configs::CardMeasurement& measurement);

// Measures the card for this request, whose precision is decided.
configs::CardMeasurement measure_card(const RunRequest& request,
                                      const wire::NodeCard& card);

// "NVIDIA H200: a step of 64 images takes 25.3 ms, 2530 images/s".
std::string measured_text(const configs::CardMeasurement& measurement);

}  // namespace headroom::cli
