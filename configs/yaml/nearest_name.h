// The known name that somebody who mistyped one most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headroom::yaml {

// Insertions, deletions, replacements and swaps of neighbours that turn `a`
// into `b` (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

// The name in `known` nearest to `word`, the first of equals; "" when none is
// near enough to be what was meant.
std::string nearest_name(std::string_view word,
                         std::span<const std::string> known);

// "did you mean 'epochs'?", or `otherwise` when nothing is near.
std::string suggestion(std::string_view word,
                       std::span<const std::string> known,
                       const std::string& otherwise);

}  // namespace headroom::yaml
