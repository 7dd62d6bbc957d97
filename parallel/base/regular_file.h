// RegularFile opens a file that another user may have made, such as a file of a
// run folder that was copied or is shared.
//
// Only a regular file is opened: opening a pipe would block until another
// process opens its other end, and a device such as /dev/zero has no end.
// Reads are bounded by the size that the file had when it was opened.
//
// Threads: any for const members. Errors: nothing here throws. A file that
// cannot be opened or read has the reason in errno: ENOTSUP if it is no regular
// file, ELOOP for a link that is refused, EFBIG if it is too large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace headroom {

// The reason in errno after a failure of this file's functions, in words: "it
// is a symbolic link, which is not followed here".
std::string file_fault();

// A symbolic link in another user's run folder can point to any file that the
// reading user may read. The page and the report show a file's text to other
// people, so they refuse links. So does every writer, because its bytes would
// go to that file. The folders above the file may be links in all cases.
enum class Links { kFollowed, kRefused };

class RegularFile {
 public:
  RegularFile(const std::filesystem::path& path, Links links);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  bool is_open() const { return descriptor_ >= 0; }
  uint64_t size() const { return size_; }      // when it was opened
  uint64_t number() const { return number_; }  // the inode
  // The bytes from `begin` on, at most `most`; fewer if the file is shorter.
  // Returns nullopt if reading fails.
  std::optional<std::string> read(uint64_t begin, uint64_t most) const;
  int descriptor() const { return descriptor_; }
  // Gives the descriptor away; the caller closes it.
  int release();

 private:
  int descriptor_ = -1;
  uint64_t size_ = 0;
  uint64_t number_ = 0;
};

// The largest file of a run that is read as a whole, and the longest line of a
// file that is read line by line. The longest lines are those of steps with
// many samples.
inline constexpr uint64_t kLargestWhole = 64 << 20;
inline constexpr size_t kLongestLine = 16 << 20;

// Calls `take` for each line, without its line feed, until `take` returns
// false. `is_whole` is false for a last line without line feed. Returns false
// if a line cannot be read, or is above kLongestLine.
bool for_each_line(
    const RegularFile& file,
    const std::function<bool(std::string_view line, bool is_whole)>& take);

// The text of a regular file; nullopt if it cannot be read, or if it has more
// than `most` bytes (EFBIG).
std::optional<std::string> text_of_file(const std::filesystem::path& path,
                                        uint64_t most, Links links);

// The text of a file of a run; "" if it cannot be read or is above
// kLargestWhole.
std::string text_or_none(const std::filesystem::path& path,
                         Links links = Links::kFollowed);

// The paths in a folder, in any order. `error` says why the list is empty or
// ends early. Unlike a loop over std::filesystem::directory_iterator it never
// throws: such a loop throws when a network file system fails in the middle.
std::vector<std::filesystem::path> entries_of(
    const std::filesystem::path& folder, std::error_code& error);

}  // namespace headroom
