// How often the test device is given something to compute: what a card would be
// given as kernels and copies, by operator.
//
// A view launches nothing and is not counted. A convolution's gradients count
// as one launch for each of them, whatever a card's library makes of that.
//
// Threads: any; all of them count together.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace headroom {

void count_launch(const std::string& name, int64_t launches = 1);

// Since the last call.
std::map<std::string, int64_t> take_launches();

}  // namespace headroom
