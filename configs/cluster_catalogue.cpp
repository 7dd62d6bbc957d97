#include "configs/cluster_catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <iterator>
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

// A number above 0 that need not be whole.
double positive_double(const yaml::YamlValue& mapping, const std::string& key) {
  const yaml::YamlValue& value = yaml::require(mapping, key);
  const double number = yaml::as_double(value, key);
  if (!(number > 0) || number > 1e6) {
    yaml::refuse(value.place, key + " is " + value.scalar,
                 "write a number above 0, at most 1000000");
  }
  return number;
}

bool is_true(const yaml::YamlValue& mapping, const std::string& key) {
  const yaml::YamlValue* value = mapping.find(key);
  if (value == nullptr) return false;
  const auto answer = yaml::parse_bool(yaml::as_text(*value, key));
  if (!answer) {
    yaml::refuse(value->place, key + " is " + value->scalar,
                 "write true, or leave it out");
  }
  return *answer;
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
  // A mistyped name may have the wrong family and the right size, or the right
  // family and the wrong size. Both kinds of entries count as near.
  const auto point_of = [](const std::string& one) {
    return std::min(one.find('.'), one.size());  // a name may have no '.'
  };
  const size_t point = point_of(name);
  const auto distance = [&](const std::string& known) {
    const size_t end = point_of(known);
    const int shared = static_cast<int>(shared_letters(name, known));
    const int family =
        yaml::edit_distance(name.substr(0, point), known.substr(0, end));
    const int size =
        point == name.size()
            ? 0
            : yaml::edit_distance(name.substr(point), known.substr(end));
    return std::pair(3 * family + size, -shared);
  };
  std::stable_sort(names.begin(), names.end(),
                   [&](const std::string& a, const std::string& b) {
                     return distance(a) < distance(b);
                   });
  names.resize(std::min(kNearest, names.size()));
  return names;
}

// The parts of a card's name that are compared with other names: "NVIDIA
// GeForce RTX 3060 12 GB" has the key "3060" and 12 GB.
struct CardKey {
  std::string key;
  int64_t gigabytes = 0;  // 0 if the name has no size
};

// Splits the name at all characters that are neither letters nor digits. The
// words are in lower case.
std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) {
      words.back() += static_cast<char>(std::tolower(letter));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

CardKey card_key(const std::string& name) {
  CardKey card;
  const std::vector<std::string> words = words_of(name);
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t digits =
        std::min(words[i].find_first_not_of("0123456789"), words[i].size());
    const bool is_split = digits == words[i].size() && i + 1 < words.size();
    const std::string unit = is_split ? words[i + 1] : words[i].substr(digits);
    const bool is_size = digits > 0 && digits <= 3 &&
                         (unit == "gb" || unit == "gib" || unit == "g");
    if (is_size) {
      card.gigabytes = std::stoll(words[i].substr(0, digits));
      i += is_split ? 1 : 0;
    } else {
      card.key += words[i];
    }
  }
  // Laptops' cards have several names.
  constexpr std::pair<const char*, const char*> kAsWritten[] = {
      {"maxqworkstationedition", ""},
      {"generation", ""},
      {"withmaxqdesign", "laptop"},
      {"maxq", "laptop"},
      {"mobile", "laptop"},
      {"nvidia", ""},
      {"geforce", ""},
      {"quadro", ""},
      {"tesla", ""},
      {"rtx", ""},
      {"gtx", ""},
      {"gpu", ""}};
  for (const auto& [written, meant] : kAsWritten) {
    const size_t at = card.key.find(written);
    if (at != std::string::npos) {
      card.key.replace(at, std::strlen(written), meant);
    }
  }
  return card;
}

// Whether the card is sold with this size of memory. The driver reports up to a
// tenth less than the sold size.
bool has_size(const Instance& card, int64_t gigabytes) {
  const double shown =
      static_cast<double>(card.gpu_memory_bytes) / (int64_t{1} << 30);
  const auto sold = static_cast<double>(gigabytes);
  return sold > 0.95 * shown && sold < 1.1 * shown;
}

bool has_key(const CataloguedCard& card, const std::string& key) {
  return card_key(card.machine.name).key == key ||
         std::ranges::any_of(card.also, [&](const std::string& other) {
           return card_key(other).key == key;
         });
}

std::string nearest_cards(const std::string& name) {
  std::vector<std::string> names;
  for (const CataloguedCard& card : card_catalogue()) {
    names.push_back(card.machine.name);
  }
  const std::string key = card_key(name).key;
  std::ranges::stable_sort(names, {}, [&](const std::string& known) {
    const std::string other = card_key(known).key;
    return std::pair(!other.starts_with(key), yaml::edit_distance(key, other));
  });
  names.resize(std::min(kNearest, names.size()));
  return joined(names, ", ");
}

// The items of a list; refuses anything else, and an empty one.
const std::vector<yaml::YamlValue>& list_in(const yaml::YamlValue& mapping,
                                            const std::string& key) {
  const yaml::YamlValue& list = yaml::require(mapping, key);
  if (list.kind != yaml::YamlValue::Kind::kSequence || list.items.empty()) {
    yaml::refuse(list.place, key + " is " + yaml::describe(list),
                 "write a list here");
  }
  return list.items;
}

// The card that the family's key `gpu` names, with the links of the family.
Instance card_of_family(const yaml::YamlValue& family) {
  const yaml::YamlValue& name = yaml::require(family, "gpu");
  const std::vector<const Instance*> cards = [&] {
    try {
      return cards_named(yaml::as_text(name, "gpu"));
    } catch (const Error& error) {
      yaml::refuse(name.place, "gpu is " + name.scalar, error.remedy());
    }
  }();
  if (cards.size() != 1) {
    yaml::refuse(name.place, "gpu is " + name.scalar,
                 "add the size of its memory, as in A100 40GB");
  }
  Instance machine = *cards.front();
  machine.link = yaml::as_text(yaml::require(family, "link"), "link");
  machine.link_gigabytes_per_second =
      optional_positive(family, "link_gigabytes_per_second");
  return machine;
}

}  // namespace

std::vector<Instance> parse_instances(const std::string& text,
                                      const std::string& file) {
  static const std::array<std::string, 2> kKeys = {"provider", "families"};
  static const std::array<std::string, 4> kFamilyKeys = {
      "gpu", "link", "link_gigabytes_per_second", "instances"};
  static const std::array<std::string, 4> kInstanceKeys = {
      "name", "gpus", "network_gigabits_per_second", "cores"};
  const yaml::YamlValue root = yaml::parse_yaml(text, file);
  yaml::require_mapping(root, "a provider", kKeys);
  const std::string provider =
      yaml::as_text(yaml::require(root, "provider"), "provider");
  std::vector<Instance> instances;
  for (const yaml::YamlValue& family : list_in(root, "families")) {
    yaml::require_mapping(family, "a family of machines", kFamilyKeys);
    Instance alike = card_of_family(family);
    alike.provider = provider;
    for (const yaml::YamlValue& item : list_in(family, "instances")) {
      yaml::require_mapping(item, "an instance", kInstanceKeys);
      Instance instance = alike;
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

std::vector<CataloguedCard> parse_cards(const std::string& text,
                                        const std::string& file) {
  static const std::array<std::string, 1> kKeys = {"cards"};
  static const std::array<std::string, 9> kCardKeys = {
      "name",
      "also",
      "gpu_memory",
      "compute_capability",
      "float_teraflops",
      "tensor_teraflops",
      "memory_gigabytes_per_second",
      "from_memory",
      "needs_arm"};
  const yaml::YamlValue root = yaml::parse_yaml(text, file);
  yaml::require_mapping(root, "a list of cards", kKeys);
  std::vector<CataloguedCard> cards;
  for (const yaml::YamlValue& item : list_in(root, "cards")) {
    yaml::require_mapping(item, "a card", kCardKeys);
    CataloguedCard card;
    Instance& machine = card.machine;
    machine.name = yaml::as_text(yaml::require(item, "name"), "name");
    machine.gpus = 1;
    machine.gpu = "NVIDIA " + machine.name;
    machine.gpu_memory_bytes = memory(item);
    machine.compute_capability = capability(item);
    machine.link = "PCIe";
    machine.float_teraflops = positive_double(item, "float_teraflops");
    machine.tensor_teraflops = item.find("tensor_teraflops") == nullptr
                                   ? machine.float_teraflops
                                   : positive_double(item, "tensor_teraflops");
    machine.memory_gigabytes_per_second =
        positive_double(item, "memory_gigabytes_per_second");
    machine.are_peaks_assumed = is_true(item, "from_memory");
    machine.needs_arm = is_true(item, "needs_arm");
    if (item.find("also") != nullptr) {
      for (const yaml::YamlValue& other : list_in(item, "also")) {
        card.also.push_back(yaml::as_text(other, "also"));
      }
    }
    cards.push_back(std::move(card));
  }
  return cards;
}

const std::vector<CataloguedCard>& card_catalogue() {
  static const std::vector<CataloguedCard> all = [] {
    std::vector<CataloguedCard> cards;
    for (const yaml::ShippedFile& file : yaml::shipped_files()) {
      if (!file.path.starts_with("cards/")) continue;
      std::ranges::move(parse_cards(std::string(file.content), file.path),
                        std::back_inserter(cards));
    }
    return cards;
  }();
  return all;
}

bool is_same_card(const CataloguedCard& card, const std::string& name) {
  const CardKey asked = card_key(name);
  return has_key(card, asked.key) &&
         (asked.gigabytes == 0 || has_size(card.machine, asked.gigabytes));
}

std::vector<const Instance*> cards_named(const std::string& name) {
  const CardKey asked = card_key(name);
  std::vector<const Instance*> same_name, cards;
  for (const CataloguedCard& card : card_catalogue()) {
    if (has_key(card, asked.key)) same_name.push_back(&card.machine);
    if (is_same_card(card, name)) cards.push_back(&card.machine);
  }
  std::ranges::stable_sort(cards, {}, &Instance::gpu_memory_bytes);
  if (!cards.empty()) return cards;
  if (!same_name.empty()) {
    throw Error(
        "cluster",
        cat("there is no card '", name, "': none of that name has ",
            asked.gigabytes, " GB"),
        "of that name are " + joined(same_name, ", ", [](const Instance* card) {
          return card->name + " (" + format_bytes(card->gpu_memory_bytes) + ")";
        }) + "; of any other card give --gpu-memory SIZE");
  }
  throw Error("cluster", "there is no card '" + name + "' in the catalogue",
              "the nearest ones are " + nearest_cards(name) +
                  "; of any other card give --gpu-memory SIZE");
}

const Instance* known_card(const std::string& name) {
  const std::vector<CataloguedCard>& all = card_catalogue();
  const auto found = std::ranges::find_if(
      all, [&](const CataloguedCard& one) { return is_same_card(one, name); });
  return found == all.end() ? nullptr : &found->machine;
}

const Instance& find_card(const std::string& name) {
  return *cards_named(name).front();
}

}  // namespace headroom::configs
