// headroom plan --prices: ranks the machines of a price list into which a run
// fits by the price of an epoch.
//
// The speed comes only from the list, as measured images per second; the
// forecast of plan_forecast.h, which has the price of a whole run on one kind
// of machine, is not used here. Machines without a measured
// speed are ranked by the price of their memory.
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
  // "p4d.24xlarge" from the catalogue, or a card such as "RTX 4090".
  std::string name = {};
  bool is_card = false;
  int64_t number = 1;         // "NAME:2": two machines, or two cards
  double price_per_hour = 0;  // price of one machine or card, in any currency
  // Measured on all `number` machines or cards together; nullopt if unknown.
  std::optional<double> images_per_second = {};
};

// Parses a price list; `text` is the content of `file`. YAML: NAME: PRICE or
// NAME: {price: PRICE, images_per_second: N}. CSV (chosen by the file's
// suffix): lines of NAME,PRICE or NAME,PRICE,N, with or without a heading.
// Errors name file:line:column (Error, exit 2).
std::vector<PricedMachine> parse_prices(const std::string& text,
                                        const std::string& file);

// The list of the file that --prices names. REQUIRES: the line has --prices.
std::vector<PricedMachine> prices_named_in(const CommandLine& line);

// The result of planning for one entry of the list.
struct PricedPlan {
  PricedMachine machine = {};
  int64_t num_gpus = 0;
  int64_t gpu_memory_bytes = 0;
  std::string refusal = {};  // "" if the run fits
  // The peak of the process that needs the most memory; 0 if the run does not
  // fit.
  int64_t predicted_peak_bytes = 0;

  double price_per_hour() const {
    return machine.price_per_hour * static_cast<double>(machine.number);
  }
  // The price per hour of one GiB of GPU memory.
  double price_per_gibibyte() const;
  // nullopt if the speed is unknown or the run does not fit.
  std::optional<double> epoch_seconds(int64_t images) const;
  std::optional<double> epoch_price(int64_t images) const;
};

// Orders the plans: first machines whose epoch has a price, cheapest first;
// then the others into which the run fits, by the price of their memory; then
// machines into which it does not fit.
void rank_by_price(std::vector<PricedPlan>& plans, int64_t images);

struct PriceAnswer {
  std::vector<PricedPlan> plans = {};  // ranked
  int64_t images = 0;                  // images of an epoch; 0 if not needed
};

// Plans for each machine of the list that --prices names. Throws Error (exit 2)
// if the request is wrong for all of them.
PriceAnswer price_plans(const CommandLine& line, const AskData& ask);

// The value of --images; nullopt if it is not given. Throws Error (exit 2).
std::optional<int64_t> images_given(const CommandLine& line);
// The images of an epoch: those given, or those of the data set, of which there
// are `in_data` (0: no data set). Throws Error (exit 2) if there are both, or
// neither although they are needed.
int64_t images_of_epoch(const std::optional<int64_t>& given, int64_t in_data,
                        bool is_needed);

// Writes large prices with two decimals and small ones with four digits,
// because an epoch may cost a hundredth of a cent.
std::string price_text(double price);

std::string prices_text(const PriceAnswer& answer);
// Makes {"exit_code", "images_per_epoch", "machines": [...]}.
std::string prices_json(const PriceAnswer& answer);

// Returns 3 if the run fits into none of the machines.
int exit_code_of(const PriceAnswer& answer);

}  // namespace headroom::cli
