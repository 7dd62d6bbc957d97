// Counts the work that the test device gets, by operator: each count is a
// kernel or copy on a card. A view launches nothing and is not counted. A
// convolution's gradients count as one launch for each of them, although a
// card's library may launch more.
//
// Threads: any; the counts are sums over all threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace headroom {

void count_launch(const std::string& name, int64_t launches = 1);

// Returns the counts since the last call.
std::map<std::string, int64_t> take_launches();

}  // namespace headroom
