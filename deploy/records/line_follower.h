// LineFollower: reads the lines of a file that another process still writes.
//
// An incomplete line at the end is not delivered; it is read again with its
// rest, because the writer may still remove it. If lines that were delivered
// were cut off, or if the file was replaced, the file is read again from its
// beginning. This is detected by comparing the last bytes read with the file. A
// file that does not exist has no lines.
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

namespace headroom {
class RegularFile;
}  // namespace headroom

namespace headroom::records {

class LineFollower {
 public:
  // Skips the lines before `first_byte`, unless the file is read again from its
  // beginning.
  explicit LineFollower(std::filesystem::path file, uint64_t first_byte = 0)
      : file_(std::move(file)), lines_end_(first_byte), read_end_(first_byte) {}

  // Calls `take` for each complete line since the last call, without its line
  // feed. Calls `restart` first if the file is read again from its beginning.
  // Lines above 16 MiB are skipped.
  void read(const std::function<void()>& restart,
            const std::function<void(std::string_view)>& take);

 private:
  bool goes_on(const RegularFile& file) const;
  bool half_line_stands(const RegularFile& file) const;
  void forget_half_line();
  void forget();
  void take_bytes(std::string_view bytes,
                  const std::function<void(std::string_view)>& take);
  void end_line(std::string_view rest);

  std::filesystem::path file_;
  uint64_t file_number_ = 0;  // the inode; 0 until known
  uint64_t lines_end_;        // the end of the last complete line
  uint64_t read_end_;         // the end of everything that was read
  std::string tail_;          // the last bytes before lines_end_
  std::string half_line_;     // bytes after lines_end_, unless skipped
  bool is_skipping_ = false;  // inside a line that is too long
};

// The offset after the last complete line of the file; 0 if there is none.
uint64_t end_of_lines(const std::filesystem::path& file);

}  // namespace headroom::records
