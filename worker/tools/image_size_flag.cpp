#include "worker/tools/image_size_flag.h"

#include <sstream>

#include "parallel/base/check.h"

namespace headroom::tools {

PixelSize read_image_size(const std::string& flag, const std::string& text) {
  constexpr int64_t kMost = 65536;
  PixelSize size;
  std::istringstream in(text);
  std::string rest;
  const bool has_height = static_cast<bool>(in >> size.height);
  if (has_height && !(in >> size.width)) {
    in.clear();
    size.width = size.height;
  }
  if (!has_height || in >> rest || size.height < 1 || size.width < 1 ||
      size.height > kMost || size.width > kMost) {
    throw Error("command line", flag + " " + text + " is no image size",
                "give pixels, for example " + flag + " 640");
  }
  return size;
}

}  // namespace headroom::tools
