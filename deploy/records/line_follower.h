// LineFollower: a file of lines that another process still writes.
//
// A half line at the end waits for its rest. A file that was cut, or made
// anew, is read from its beginning again: the end of what was read is held
// against what stands there now.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace headroom::records {

class LineFollower {
 public:
  // Lines before `first_byte` are not read, unless the file begins again.
  explicit LineFollower(std::filesystem::path file, uint64_t first_byte = 0)
      : file_(std::move(file)), offset_(first_byte) {}

  // Hands over the whole lines that came since the last call, without their
  // line feeds. `restart` is called before the lines of a file that begins
  // again. A file that is not there has no lines.
  void read(const std::function<void()>& restart,
            const std::function<void(std::string_view)>& take);

  // The lines above 16 MiB, which nobody wrote on purpose: they are skipped.
  int64_t overlong_lines() const { return overlong_lines_; }

 private:
  bool goes_on(int descriptor, uint64_t size) const;
  void forget();
  void take_bytes(std::string_view bytes,
                  const std::function<void(std::string_view)>& take);

  std::filesystem::path file_;
  uint64_t offset_;           // bytes that were read
  uint64_t file_number_ = 0;  // 0 until it is known
  std::string tail_;          // the last bytes before offset_
  std::string half_line_;
  bool is_skipping_ = false;  // the rest of a line that is too long
  int64_t overlong_lines_ = 0;
};

}  // namespace headroom::records
