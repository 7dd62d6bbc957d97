#include "worker/weights/weights_classes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace headroom::weights {

std::vector<std::string> class_names_of(
    const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> names;
  const auto said = metadata.find("names");
  if (said == metadata.end()) return names;
  const auto list = nlohmann::json::parse(said->second, nullptr, false);
  if (!list.is_array()) return names;
  for (const auto& name : list) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

std::string class_name_note(const std::vector<std::string>& of_weights,
                            const std::vector<std::string>& of_data,
                            const std::string& weights,
                            const std::string& data) {
  if (of_weights.size() != of_data.size()) return "";
  const auto [theirs, here] =
      std::mismatch(of_weights.begin(), of_weights.end(), of_data.begin());
  if (theirs == of_weights.end()) return "";
  const bool is_reordered = std::is_permutation(
      of_weights.begin(), of_weights.end(), of_data.begin());
  return "class " + std::to_string(theirs - of_weights.begin()) + " is '" +
         *here + "' in " + data + ", but '" + *theirs + "' in " + weights +
         ": classes are compared by number, " +
         (is_reordered ? "and these are the same names in another order"
                       : "whatever their names");
}

}  // namespace headroom::weights
