// Parses command-line arguments into uses of options, for headroom, its tools
// and the worker, and refuses arguments that do not fit.
//
// Errors: Error (exit 2) of one line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "configs/options.h"

namespace headroom::configs {

inline bool is_flag(const std::string& word) { return word.starts_with("--"); }

// Returns "--img" for "--img=640".
std::string spelling_of(const std::string& word);

// An option as given on the command line.
struct OptionUse {
  std::string name;                 // the name as typed: "--img"
  std::vector<std::string> values;  // empty for a switch
  std::string text;                 // the words from which it was read
};

// Reads the use of `option` at words[at] and moves `at` past it. Words that do
// not belong to the option are not read: any word after a switch, or a second
// word if the option takes one. `help` is the command that explains the option.
OptionUse take_use(const Option& option, const std::vector<std::string>& words,
                   size_t& at, const std::string& help);

// Sets the options' variables: first to the declared defaults, then to the
// given values. Options without a name take the words without a flag, in order.
void read_arguments(const std::vector<Option>& options,
                    const std::vector<std::string>& words,
                    const std::string& help);

// Returns words from which read_arguments() sets the options' variables to
// their current values. A value equal to its default in `unset` is left out.
std::vector<std::string> words_of(const std::vector<Option>& options,
                                  const std::vector<Option>& unset);

// Wraps `text` into lines indented by `indent` spaces and of at most `columns`
// columns; 0 means no limit.
std::string wrapped(const std::string& text, size_t columns, size_t indent);

// An entry of a help text: the head, with the text below it.
std::string help_entry(const std::string& head, const std::string& text);

// The option's form in a help: "--batch, --batch-size N".
std::string form_of(const Option& option);

}  // namespace headroom::configs
