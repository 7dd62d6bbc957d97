#include "configs/augment_place.h"

namespace headroom::configs {

AugmentPlace augment_place(const RunConfig& config) {
  if (config.augment_on == "device") return {true, "as asked for"};
  if (config.augment_on == "cpu") return {false, "as asked for"};
  return {false, "which is faster has not been measured on a card yet"};
}

}  // namespace headroom::configs
