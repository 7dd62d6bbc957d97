// LineFollower: a file of lines that another process still writes.
//
// A half line at the end is nothing yet: it is read again with its rest, and
// may be taken back. A file whose whole lines were cut, or that was made anew,
// is read from its beginning again: the end of what was read is held against
// what stands there now. While the file is not there, nothing comes.
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
      : file_(std::move(file)), lines_end_(first_byte), read_end_(first_byte) {}

  // Hands over the whole lines that came since the last call, without their
  // line feeds. `restart` is called before the lines of a file that begins
  // again.
  void read(const std::function<void()>& restart,
            const std::function<void(std::string_view)>& take);

  // The lines above 16 MiB, which nobody wrote on purpose: they are skipped.
  int64_t overlong_lines() const { return overlong_lines_; }

 private:
  bool goes_on(int descriptor, uint64_t size) const;
  bool half_line_stands(int descriptor, uint64_t size) const;
  void forget_half_line();
  void forget();
  void take_bytes(std::string_view bytes,
                  const std::function<void(std::string_view)>& take);
  void end_line(std::string_view rest);

  std::filesystem::path file_;
  uint64_t file_number_ = 0;  // 0 until it is known
  uint64_t lines_end_;        // the byte behind the last whole line
  uint64_t read_end_;         // the byte behind all that was read
  std::string tail_;          // the last bytes before lines_end_
  std::string half_line_;     // those behind it, unless it is skipped
  bool is_skipping_ = false;  // a line that is too long
  int64_t overlong_lines_ = 0;
};

// The byte behind the last whole line of the file; 0 where there is none.
uint64_t end_of_lines(const std::filesystem::path& file);

}  // namespace headroom::records
