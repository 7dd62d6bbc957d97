#include "parallel/base/line_file.h"

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <system_error>

namespace headroom {

bool LineFile::write() {
  if (waiting_.empty()) return true;
  std::error_code no_file;
  const uintmax_t size = std::filesystem::file_size(path_, no_file);
  std::ofstream file(path_, std::ios::binary | std::ios::app);
  file << waiting_;
  file.close();
  if (file) {
    waiting_.clear();
    return true;
  }
  const int reason = errno;
  // What was written of it is no whole line.
  std::error_code ignored;
  std::filesystem::resize_file(path_, no_file ? 0 : size, ignored);
  errno = reason;
  return false;
}

}  // namespace headroom
