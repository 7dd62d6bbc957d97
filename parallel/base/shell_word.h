// A text as one word of a shell command, for hints that people copy: paths hold
// spaces and worse.
#pragma once

#include <string>

namespace headroom {

// Unchanged where the shell would not change it, else in single quotes.
std::string shell_word(const std::string& text);

}  // namespace headroom
