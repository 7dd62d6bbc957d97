#include "configs/yaml/nearest_name.h"

#include <algorithm>
#include <vector>

namespace headroom::yaml {

int edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> before_last(width), last(width), row(width);
  for (size_t j = 0; j < width; ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < width; ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view word,
                         std::span<const std::string> known) {
  // A name that shares less than two thirds of its letters is no typing error;
  // the cut also bounds the work on a hostile file's giant keys.
  if (word.empty() || word.size() > 64) return "";
  int best = std::max<int>(2, static_cast<int>(word.size()) / 3) + 1;
  std::string nearest;
  for (const std::string& name : known) {
    const int distance = edit_distance(word, name);
    if (distance < best && distance < static_cast<int>(name.size())) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string suggestion(std::string_view word,
                       std::span<const std::string> known,
                       const std::string& otherwise) {
  const std::string nearest = nearest_name(word, known);
  return nearest.empty() ? otherwise : "did you mean '" + nearest + "'?";
}

}  // namespace headroom::yaml
