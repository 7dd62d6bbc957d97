#include "configs/class_names.h"

#include <cstddef>

#include "parallel/base/check.h"
#include "parallel/base/utf8.h"

namespace headroom::configs {

void check_class_names(const std::vector<std::string>& names,
                       const std::filesystem::path& file) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (valid_utf8(names[i]) == names[i]) continue;
    throw Error("data",
                file.string() + ": the name of class " + std::to_string(i) +
                    " is not UTF-8",
                "save the file as UTF-8 (for XML, declare its encoding)");
  }
}

}  // namespace headroom::configs
