// SourcePlace: where in a file a value was written.
#pragma once

#include <string>

namespace headroom::yaml {

// file:line:column of a YAML value; lines and columns count from 1.
struct SourcePlace {
  std::string file;
  int line = 0;
  int column = 0;
};

// "run.yaml:3:5".
inline std::string to_string(const SourcePlace& place) {
  return place.file + ":" + std::to_string(place.line) + ":" +
         std::to_string(place.column);
}

}  // namespace headroom::yaml
