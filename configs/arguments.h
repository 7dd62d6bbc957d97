// Words of a command line as uses of options, for headroom, its tools and the
// worker: what may follow a flag, and what is said where something else does.
//
// Errors: Error (exit 2) of one line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "configs/options.h"

namespace headroom::configs {

inline bool is_flag(const std::string& word) { return word.starts_with("--"); }

// "--img" of "--img=640".
std::string spelling_of(const std::string& word);

// An option as it was given.
struct OptionUse {
  std::string name;                 // as it was written
  std::vector<std::string> values;  // none of a switch
  std::string text;                 // the words themselves
};

// The use of `option` that begins with words[at], which moves behind it. Words
// that belong to no option are left: whatever follows a switch, or a second
// word where the option takes one. `help` is the command that explains it.
OptionUse take_use(const Option& option, const std::vector<std::string>& words,
                   size_t& at, const std::string& help);

// Sets the variables that the options are bound to, first to the declared
// defaults. Options without a name take the words without a flag, in order.
void read_arguments(const std::vector<Option>& options,
                    const std::vector<std::string>& words,
                    const std::string& help);

// The words that make read_arguments() set the same values. A value that the
// program would take anyway, which `unset` holds, is left out.
std::vector<std::string> words_of(const std::vector<Option>& options,
                                  const std::vector<Option>& unset);

// The words of `text` in lines that begin with `indent` spaces and have at most
// so many columns, 0 for any number.
std::string wrapped(const std::string& text, size_t columns, size_t indent);

// An entry of a help: the head, and below it the text.
std::string help_entry(const std::string& head, const std::string& text);

// "--batch, --batch-size N".
std::string form_of(const Option& option);

}  // namespace headroom::configs
