// Class names go into JSON, TensorBoard and messages, all of which are UTF-8: a
// name that is not is refused where it is read, not when a run is saved.
//
// Errors: Error (exit 2) that names the file and the name's place in the list.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::configs {

void check_class_names(const std::vector<std::string>& names,
                       const std::filesystem::path& file);

}  // namespace headroom::configs
