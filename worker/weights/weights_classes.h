// The classes that a file of weights says it knows.
//
// Pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace headroom::weights {

// "names" of a file's metadata; empty: it has none.
std::vector<std::string> class_names_of(
    const std::map<std::string, std::string>& metadata);

// What people are told where data and weights have the same number of classes
// by other names, or in another order: every box would be judged as another
// class. "": the names are the same, or the weights have none. `weights` and
// `data` are the files.
std::string class_name_note(const std::vector<std::string>& of_weights,
                            const std::vector<std::string>& of_data,
                            const std::string& weights,
                            const std::string& data);

}  // namespace headroom::weights
