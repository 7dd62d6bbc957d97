// Makes the guide's page deploy/guide/reference.md from the declarations of
// flags, keys and commands in the code.
#pragma once

#include <string>

namespace headroom {

std::string reference_page();

}  // namespace headroom
