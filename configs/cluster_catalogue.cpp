#include "configs/cluster_catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <utility>

#include "configs/yaml/scalar.h"
#include "configs/yaml/shipped_files.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::configs {
namespace {

constexpr size_t kNearest = 4;

int64_t positive(const yaml::YamlValue& mapping, const std::string& key) {
  const yaml::YamlValue& value = yaml::require(mapping, key);
  const int64_t number = yaml::as_int64(value, key);
  if (number < 1 || number > 1'000'000) {
    yaml::refuse(value.place, cat(key, " is ", number),
                 "write a whole number from 1 to 1000000");
  }
  return number;
}

// Returns 0 if the key is missing.
int64_t optional_positive(const yaml::YamlValue& mapping,
                          const std::string& key) {
  return mapping.find(key) == nullptr ? 0 : positive(mapping, key);
}

int64_t memory(const yaml::YamlValue& mapping) {
  const yaml::YamlValue& value = yaml::require(mapping, "gpu_memory");
  const auto bytes = parse_bytes(yaml::as_text(value, "gpu_memory"));
  if (!bytes || *bytes < 1) {
    yaml::refuse(value.place, "gpu_memory is " + value.scalar,
                 "write a size, for example 16160MiB");
  }
  return *bytes;
}

// Reads "10.3" as 103.
int capability(const yaml::YamlValue& mapping) {
  const yaml::YamlValue& value = yaml::require(mapping, "compute_capability");
  const std::string text = yaml::as_text(value, "compute_capability");
  const size_t point = text.find('.');
  const auto digits = [](const std::string& part) {
    return !part.empty() && part.size() <= 2 &&
           std::all_of(part.begin(), part.end(),
                       [](char c) { return c >= '0' && c <= '9'; });
  };
  if (point == std::string::npos || !digits(text.substr(0, point)) ||
      !digits(text.substr(point + 1)) || text.size() != point + 2) {
    yaml::refuse(value.place, "compute_capability is " + text,
                 "write it as in \"8.0\"");
  }
  return std::stoi(text.substr(0, point)) * 10 +
         std::stoi(text.substr(point + 1));
}

// The length of the common prefix.
size_t shared_letters(const std::string& a, const std::string& b) {
  const auto ends = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(ends.first - a.begin());
}

std::vector<std::string> nearest_instances(const std::string& name) {
  std::vector<std::string> names;
  for (const Instance& instance : instance_catalogue())
    names.push_back(instance.name);
  // After a typing error, another family with the same size is as likely as
  // another size of this family.
  const size_t point = std::min(name.find('.'), name.size());
  const auto distance = [&](const std::string& known) {
    const int shared = static_cast<int>(shared_letters(name, known));
    const int family = yaml::edit_distance(name.substr(0, point),
                                           known.substr(0, known.find('.')));
    const int size = point == name.size()
                         ? 0
                         : yaml::edit_distance(name.substr(point),
                                               known.substr(known.find('.')));
    return std::pair(3 * family + size, -shared);
  };
  std::stable_sort(names.begin(), names.end(),
                   [&](const std::string& a, const std::string& b) {
                     return distance(a) < distance(b);
                   });
  names.resize(std::min(kNearest, names.size()));
  return names;
}

// Shortens "NVIDIA GeForce RTX 4090" to "4090".
std::string card_key(const std::string& name) {
  std::string key;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0)
      key += static_cast<char>(std::tolower(letter));
  }
  for (const char* series :
       {"nvidia", "geforce", "quadro", "tesla", "rtx", "gtx"}) {
    const size_t at = key.find(series);
    if (at != std::string::npos) key.erase(at, std::strlen(series));
  }
  return key;
}

std::string nearest_cards(const std::string& name) {
  std::vector<std::string> names;
  for (const Instance& card : card_catalogue()) names.push_back(card.name);
  const std::string key = card_key(name);
  std::ranges::stable_sort(names, {}, [&](const std::string& known) {
    const std::string other = card_key(known);
    return std::pair(!other.starts_with(key), yaml::edit_distance(key, other));
  });
  names.resize(std::min(kNearest, names.size()));
  return joined(names, ", ");
}

}  // namespace

std::vector<Instance> parse_instances(const std::string& text,
                                      const std::string& file) {
  static const std::array<std::string, 9> kFamilyKeys = {
      "provider",
      "gpu",
      "gpu_memory",
      "compute_capability",
      "link",
      "link_gigabytes_per_second",
      "tensor_teraflops",
      "memory_gigabytes_per_second",
      "instances"};
  static const std::array<std::string, 4> kInstanceKeys = {
      "name", "gpus", "network_gigabits_per_second", "cores"};
  const yaml::YamlValue root = yaml::parse_yaml(text, file);
  yaml::require_mapping(root, "a family of machines", kFamilyKeys);
  Instance family;
  family.provider = yaml::as_text(yaml::require(root, "provider"), "provider");
  family.gpu = yaml::as_text(yaml::require(root, "gpu"), "gpu");
  family.gpu_memory_bytes = memory(root);
  family.compute_capability = capability(root);
  family.link = yaml::as_text(yaml::require(root, "link"), "link");
  family.link_gigabytes_per_second =
      optional_positive(root, "link_gigabytes_per_second");
  family.tensor_teraflops = optional_positive(root, "tensor_teraflops");
  family.memory_gigabytes_per_second =
      optional_positive(root, "memory_gigabytes_per_second");
  const yaml::YamlValue& list = yaml::require(root, "instances");
  if (list.kind != yaml::YamlValue::Kind::kSequence || list.items.empty()) {
    yaml::refuse(list.place, "instances is " + yaml::describe(list),
                 "write a list here");
  }
  std::vector<Instance> instances;
  for (const yaml::YamlValue& item : list.items) {
    yaml::require_mapping(item, "an instance", kInstanceKeys);
    Instance instance = family;
    instance.name = yaml::as_text(yaml::require(item, "name"), "name");
    instance.gpus = positive(item, "gpus");
    if (instance.gpus == 1) {
      instance.link.clear();
      instance.link_gigabytes_per_second = 0;
    }
    instance.network_gigabits_per_second =
        optional_positive(item, "network_gigabits_per_second");
    instance.cores = optional_positive(item, "cores");
    instances.push_back(instance);
  }
  return instances;
}

const std::vector<Instance>& instance_catalogue() {
  static const std::vector<Instance> all = [] {
    std::vector<Instance> instances;
    for (const yaml::ShippedFile& file : yaml::shipped_files()) {
      if (!file.path.starts_with("cluster/")) continue;
      for (Instance& instance :
           parse_instances(std::string(file.content), file.path))
        instances.push_back(std::move(instance));
    }
    return instances;
  }();
  return all;
}

const Instance& find_instance(const std::string& name) {
  for (const Instance& instance : instance_catalogue())
    if (instance.name == name) return instance;
  throw Error(
      "cluster", "there is no instance '" + name + "'",
      "the nearest real ones are " + joined(nearest_instances(name), ", "));
}

std::vector<Instance> parse_cards(const std::string& text,
                                  const std::string& file) {
  static const std::array<std::string, 1> kKeys = {"cards"};
  static const std::array<std::string, 5> kCardKeys = {
      "name", "gpu_memory", "compute_capability", "link",
      "link_gigabytes_per_second"};
  const yaml::YamlValue root = yaml::parse_yaml(text, file);
  yaml::require_mapping(root, "a list of cards", kKeys);
  std::vector<Instance> cards;
  for (const yaml::YamlValue& item : yaml::require(root, "cards").items) {
    yaml::require_mapping(item, "a card", kCardKeys);
    Instance card;
    card.name = yaml::as_text(yaml::require(item, "name"), "name");
    card.gpus = 1;
    card.gpu = "NVIDIA " + card.name;
    card.gpu_memory_bytes = memory(item);
    card.compute_capability = capability(item);
    card.link = yaml::as_text(yaml::require(item, "link"), "link");
    card.link_gigabytes_per_second =
        optional_positive(item, "link_gigabytes_per_second");
    cards.push_back(card);
  }
  return cards;
}

const std::vector<Instance>& card_catalogue() {
  static const std::vector<Instance> all = [] {
    std::vector<Instance> cards;
    for (const yaml::ShippedFile& file : yaml::shipped_files()) {
      if (!file.path.starts_with("cards/")) continue;
      for (Instance& card : parse_cards(std::string(file.content), file.path)) {
        cards.push_back(std::move(card));
      }
    }
    return cards;
  }();
  return all;
}

const Instance& find_card(const std::string& name) {
  const auto found =
      std::ranges::find_if(card_catalogue(), [&](const Instance& card) {
        return card_key(card.name) == card_key(name);
      });
  if (found != card_catalogue().end()) return *found;
  throw Error("cluster", "there is no card '" + name + "' in the catalogue",
              "the nearest ones are " + nearest_cards(name) +
                  "; of any other card give --gpu-memory SIZE");
}

}  // namespace headroom::configs
