// The catalogues of machines for rent, configs/cluster/*.yaml, and of single
// cards, configs/cards/*.yaml. Both are part of the program.
//
// A file of machines has a provider's families; the instances of a family
// differ only in the number of GPUs, the cores and the network, and name their
// card in the table of cards. Unknown, missing and mistyped keys are refused
// with file:line:column.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::configs {

// One kind of machine. All GPUs of the machine are equal.
struct Instance {
  std::string provider;  // "AWS"
  std::string name;      // "p4d.24xlarge"
  int64_t gpus = 0;
  std::string gpu;               // "NVIDIA A100 40GB"
  int64_t gpu_memory_bytes = 0;  // Memory of one GPU, as the driver shows it.
  // The GPU's compute capability; 80 for "8.0".
  int compute_capability = 0;
  // The link between the GPUs; "" with one GPU.
  std::string link;
  int64_t link_gigabytes_per_second = 0;  // Per GPU; 0 if not published.
  // The machine's network bandwidth (small machines reach it only briefly); 0
  // if not published.
  int64_t network_gigabits_per_second = 0;
  // One GPU's published peaks; 0 if not in the catalogue. `tensor_teraflops`:
  // 16-bit tensor cores without sparsity, else the rate of float32.
  double tensor_teraflops = 0;
  double float_teraflops = 0;  // float32 without tensor cores
  double memory_gigabytes_per_second = 0;
  // Whether the peaks are from the table's author, not from a data sheet.
  bool are_peaks_assumed = false;
  bool needs_arm = false;  // the processor beside the card is not x86-64
  int64_t cores = 0;       // Virtual processors; 0 if unknown.
};

// `text` is the content of `file`.
std::vector<Instance> parse_instances(const std::string& text,
                                      const std::string& file);

// All shipped instances, by file and in the order written.
const std::vector<Instance>& instance_catalogue();

// Throws Error (exit 2) that names the nearest known instances.
const Instance& find_instance(const std::string& name);

// A card of the table as a machine with one GPU, and its other names.
struct CataloguedCard {
  Instance machine;
  std::vector<std::string> also;
};

// `text` is the content of `file`.
std::vector<CataloguedCard> parse_cards(const std::string& text,
                                        const std::string& file);

// The shipped cards, in the order written.
const std::vector<CataloguedCard>& card_catalogue();

// Whether `name` means this card, by the rules of cards_named().
bool is_same_card(const CataloguedCard& card, const std::string& name);

// The cards with this name, the one with the least memory first; each is a
// machine with one GPU. In `name`, spaces, hyphens, case and the names of
// NVIDIA's series are ignored: "RTX 4090", "geforce-rtx-4090" and "4090" are
// the same card. A size of memory ("RTX 3060 12 GB") chooses between cards of
// one name. Throws Error (exit 2) that names the nearest cards or the sizes.
std::vector<const Instance*> cards_named(const std::string& name);

// The card with the name that its driver gives; nullptr if the table lacks it.
const Instance* known_card(const std::string& name);

// The first of cards_named().
const Instance& find_card(const std::string& name);

}  // namespace headroom::configs
