// NewFolder: a folder that appears when all of it is there, or not at all.
//
// Files go into a hidden folder beside it, which takes its name at the end and
// is removed if that is never reached.
//
// Threads: write() from any number; the rest from one.
// Errors: Error, exit 2 if the folder is there and not empty, exit 5 if it
// cannot be written.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom {

class NewFolder {
 public:
  // `tag` and `flag` are for messages: "tile", "--output".
  NewFolder(const std::filesystem::path& folder, std::string tag,
            const std::string& flag);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Paths are relative to the folder.
  void make(const std::filesystem::path& sub_folder) const;
  void write(const std::filesystem::path& file, std::string_view bytes) const;
  void copy(const std::filesystem::path& from,
            const std::filesystem::path& file) const;
  void remove(const std::filesystem::path& file) const;

  // Gives the folder its name. REQUIRES: at most once, and nothing after it.
  void finish();

 private:
  [[noreturn]] void refuse_to_write(const std::filesystem::path& file,
                                    const std::string& why) const;

  std::filesystem::path folder_, partial_;
  std::string tag_;
};

}  // namespace headroom
