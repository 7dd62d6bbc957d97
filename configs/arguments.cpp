#include "configs/arguments.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <map>
#include <sstream>
#include <string_view>

#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::configs {
namespace {

[[noreturn]] void refuse_words(const std::string& what,
                               const std::string& remedy) {
  throw Error("command line", what, remedy);
}

// A number as short text: "1", "0.001", "65536".
std::string short_number(double number) {
  std::ostringstream text;
  text << std::setprecision(10) << number;
  return text.str();
}

[[noreturn]] void refuse_number(const Option& option, const std::string& name,
                                const std::string& text) {
  const bool is_fraction = std::holds_alternative<double*>(option.member);
  std::string remedy = "for example ";
  std::string shown = option.default_value.empty()
                          ? short_number(option.range.low)
                          : option.default_value;
  if (text.ends_with('%') && option.range.high <= 1) {
    if (const auto percent =
            yaml::parse_double(text.substr(0, text.size() - 1))) {
      remedy = "write ";
      shown = short_number(*percent / 100);
    }
  }
  refuse_words(name + " " + text + ": " + text + " is not " +
                   (is_fraction ? "" : "a whole number ") + "from " +
                   short_number(option.range.low) + " to " +
                   short_number(option.range.high),
               remedy + name + " " + shown);
}

// Sets the option's variable.
void set_variable(const Option& option, const std::string& name,
                  const std::string& text) {
  RunConfig unused;  // set_from_text() sets the variable instead
  if (!option.choices.empty() &&
      std::ranges::count(option.choices, text) == 0) {
    refuse_words(name + " " + text + " is not known",
                 "give " + either_of(option.choices));
  }
  const bool is_bounded = option.range.high != kUnbounded;
  if (!set_from_text(unused, option, text)) {
    if (is_bounded) refuse_number(option, name, text);
    refuse_words(
        name + " " + text + ": '" + text + "' is not " + type_name(option),
        "write " + form_of(option));
  }
  if (is_bounded && !option.range.contains(number_of(unused, option))) {
    refuse_number(option, name, text);
  }
}

bool is_word(const Option& option) { return option.names.empty(); }

}  // namespace

std::string spelling_of(const std::string& word) {
  return word.substr(0, word.find('='));
}

OptionUse take_use(const Option& option, const std::vector<std::string>& words,
                   size_t& at, const std::string& help) {
  const std::string& first = words[at++];
  OptionUse use{.name = spelling_of(first), .values = {}, .text = first};
  if (use.name.size() < first.size()) {
    use.values.push_back(first.substr(use.name.size() + 1));
  }
  if (is_switch(option)) {
    // Accept --json=true.
    if (!use.values.empty() && use.values.front() != "true") {
      refuse_words(use.name + " is a switch and takes no value",
                   "leave it out to have it off");
    }
    use.values.clear();
    return use;
  }
  const size_t most =
      option.second_key.empty() ? static_cast<size_t>(option.most_values) : 2;
  // Read all values of a list, so that the message about a list that is too
  // long shows the whole list.
  while (at < words.size() && !is_flag(words[at]) &&
         (most > 1 || use.values.empty())) {
    use.text += " " + words[at];
    use.values.push_back(words[at++]);
  }
  if (option.value_is_optional && use.values == std::vector<std::string>{""}) {
    use.values.clear();
  }
  if (use.values.size() > most ||
      (use.values.empty() && !option.value_is_optional)) {
    refuse_words(use.name + " must be followed by " + option.value_name,
                 help + " shows how to write it");
  }
  return use;
}

void read_arguments(const std::vector<Option>& options,
                    const std::vector<std::string>& words,
                    const std::string& help) {
  for (const Option& option : options) {
    if (option.default_value.empty()) continue;
    set_variable(option, form_of(option), option.default_value);
  }
  std::map<const Option*, std::string> given;
  for (size_t at = 0; at < words.size();) {
    const std::string name = spelling_of(words[at]);
    const auto option = std::ranges::find_if(options, [&](const Option& one) {
      if (!is_flag(name)) return is_word(one) && !given.contains(&one);
      return std::ranges::count(one.names, name) > 0;
    });
    if (option == options.end()) {
      refuse_words(is_flag(name) ? "unknown flag " + name
                                 : "'" + words[at] + "' belongs to no flag",
                   help + " shows what may stand where");
    }
    OptionUse use;
    if (is_word(*option)) {
      use = {option->value_name, {words[at]}, words[at]};
      ++at;
    } else {
      use = take_use(*option, words, at, help);
    }
    if (!given.emplace(&*option, use.text).second) {
      refuse_words(
          given.at(&*option) + " and " + use.text + ": the flag is given twice",
          "give it once");
    }
    set_variable(*option, use.name,
                 is_switch(*option) ? "true" : joined(use.values, " "));
  }
  for (const Option& option : options) {
    if (!option.is_required || given.contains(&option)) continue;
    refuse_words((is_word(option) ? option.value_name : option.names.front()) +
                     " is required",
                 help + " shows how to write it");
  }
}

std::vector<std::string> words_of(const std::vector<Option>& options,
                                  const std::vector<Option>& unset) {
  std::vector<std::string> words;
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string value = value_text({}, options[i]);
    if (!options[i].is_required && value == value_text({}, unset[i])) continue;
    if (!is_word(options[i])) words.push_back(options[i].names.front());
    if (!is_switch(options[i])) words.push_back(value);
  }
  return words;
}

std::string wrapped(const std::string& text, size_t columns, size_t indent) {
  std::istringstream words(text);
  std::string word, line(indent, ' '), result;
  while (words >> word) {
    if (columns > 0 && line.size() > indent &&
        line.size() + 1 + word.size() > columns) {
      result += line + "\n";
      line.assign(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line += word;
  }
  return result + line + "\n";
}

std::string help_entry(const std::string& head, const std::string& text) {
  return "  " + head + "\n" + wrapped(text, 80, 6);
}

std::string form_of(const Option& option) {
  const bool both = !option.names.empty() && !option.value_name.empty();
  return joined(option.names, ", ") + (both ? " " : "") + option.value_name;
}

}  // namespace headroom::configs
