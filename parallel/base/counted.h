// counted: a number with its noun, as people write them.
#pragma once

#include <cstdint>
#include <string>

namespace headroom {

// 1 -> "1 image", 2 -> "2 images"; "boxes" of "box", "classes" of "class".
inline std::string counted(int64_t number, const std::string& noun) {
  const bool hisses = noun.ends_with('s') || noun.ends_with('x');
  return std::to_string(number) + " " + noun +
         (number == 1 ? "" : (hisses ? "es" : "s"));
}

}  // namespace headroom
