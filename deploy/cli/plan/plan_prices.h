// headroom plan --prices: the machines of a price list that a run fits into,
// ranked by what an epoch costs on them.
//
// The catalogue knows memory and links of machines, not their speed, and the
// forecast of a step (parallel/planner/plan_memory.h) is one of processor
// cores. So an epoch's cost follows from images a second that the list says, as
// somebody measured them; machines without follow by the price of their memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/yaml/yaml_tree.h"
#include "deploy/cli/args/command_line.h"
#include "deploy/cli/process/dataset_query.h"

namespace headroom::cli {

struct PricedMachine {
  // "p4d.24xlarge" of the catalogue, or a card such as "RTX 4090".
  std::string name = {};
  bool is_card = false;
  int64_t number = 1;         // "NAME:2" are two machines, or two cards
  double price_per_hour = 0;  // one machine's, in any currency
  // What somebody measured on all of them together.
  std::optional<double> images_per_second = {};
};

// `text` is the content of `file`. As YAML, NAME: PRICE or NAME: {price: PRICE,
// images_per_second: N}; as CSV, where the file's name ends so, lines of
// NAME,PRICE or NAME,PRICE,N, with or without a heading. What is wrong is
// refused as file:line:column (Error, exit 2).
std::vector<PricedMachine> parse_prices(const std::string& text,
                                        const std::string& file);

// What a plan for some machines comes to.
struct PricedPlan {
  PricedMachine machine = {};
  int64_t num_gpus = 0;
  int64_t gpu_memory_bytes = 0;
  std::string refusal = {};          // "": the run fits
  int64_t predicted_peak_bytes = 0;  // the fullest process's, where it fits

  double price_per_hour() const {
    return machine.price_per_hour * static_cast<double>(machine.number);
  }
  // The price of a GiB of the GPUs' memory for an hour.
  double price_per_gibibyte() const;
  // Nothing where no speed is known.
  std::optional<double> epoch_seconds(int64_t images) const;
  std::optional<double> epoch_price(int64_t images) const;
};

// First the machines whose epoch has a price, the cheapest first; then those
// that fit, by the price of their memory; then those that the run does not fit
// into.
void rank_by_price(std::vector<PricedPlan>& plans, int64_t images);

struct PriceAnswer {
  std::vector<PricedPlan> plans = {};  // ranked
  int64_t images = 0;                  // an epoch's; 0 where nobody needs them
};

// Plans for each machine of the list that --prices names. Throws Error (exit 2)
// where the request is wrong for all of them.
PriceAnswer price_plans(const CommandLine& line, const AskData& ask);

std::string prices_text(const PriceAnswer& answer);
// {"exit_code", "images_per_epoch", "machines": [...]}.
std::string prices_json(const PriceAnswer& answer);

// 3 where the run fits into none of the machines.
int exit_code_of(const PriceAnswer& answer);

}  // namespace headroom::cli
