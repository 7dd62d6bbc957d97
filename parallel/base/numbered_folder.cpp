#include "parallel/base/numbered_folder.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <unistd.h>

#include "parallel/base/run_files.h"
#include "parallel/base/text.h"

namespace headroom {

namespace fs = std::filesystem;

fs::path free_folder_name(const fs::path& base) {
  fs::path candidate = base;
  for (int number = 2; fs::exists(fs::symlink_status(candidate)); ++number) {
    candidate = cat(base.string(), number);
  }
  return candidate;
}

fs::path make_free_folder(const fs::path& base) {
  fs::create_directories(base.parent_path());
  for (;;) {
    const fs::path name = free_folder_name(base);
    // create_directory returns false if another process created it first.
    if (fs::create_directory(name)) return name;
  }
}

bool is_begun_run_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / run_files::kWeights, ignored);
}

namespace {

fs::path without_slash(const fs::path& folder) {
  const fs::path normal = fs::absolute(folder).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

}  // namespace

NewFolder::NewFolder(const fs::path& folder, std::string tag,
                     const std::string& flag)
    : folder_(without_slash(folder)), tag_(std::move(tag)) {
  std::error_code error;
  const fs::file_status there = fs::symlink_status(folder_, error);
  if (fs::exists(there) && !fs::is_directory(there)) {
    throw Error(tag_, folder_.string() + " is there and no folder",
                "name a new folder for " + flag);
  }
  if (fs::exists(there) && !fs::is_empty(folder_, error)) {
    throw Error(tag_, folder_.string() + " is not empty",
                "name a new folder for " + flag);
  }
  partial_ = folder_.parent_path() /
             (cat(".", folder_.filename().string(), ".partial-", getpid()));
  fs::create_directories(folder_.parent_path(), error);
  // If the hidden folder exists already, create_directory returns false without
  // an error; if a file has its name, with an error.
  if (error || !fs::create_directory(partial_, error)) {
    throw Error(tag_,
                partial_.string() + " cannot be made (" +
                    (error ? error.message() : "it exists") + ")",
                "name another folder for " + flag,
                exit_of_unmade_folder(error));
  }
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

void NewFolder::make(const fs::path& sub_folder) const {
  std::error_code error;
  fs::create_directories(partial_ / sub_folder, error);
  if (!error) return;
  throw Error(tag_,
              (partial_ / sub_folder).string() + " cannot be made (" +
                  error.message() + ")",
              "free some space, or name another folder", ExitCode::kResource);
}

void NewFolder::write(const fs::path& file, std::string_view bytes) const {
  errno = 0;
  std::ofstream stream(partial_ / file, std::ios::binary);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  if (!stream) refuse_to_write(file, std::strerror(errno));
}

void NewFolder::copy(const fs::path& from, const fs::path& file) const {
  std::error_code error;
  fs::copy_file(from, partial_ / file, error);
  if (error) refuse_to_write(file, error.message());
}

void NewFolder::refuse_to_write(const fs::path& file,
                                const std::string& why) const {
  throw Error(tag_,
              (partial_ / file).string() + " cannot be written (" + why + ")",
              "free some space, or name another folder", ExitCode::kResource);
}

void NewFolder::remove(const fs::path& file) const {
  std::error_code ignored;
  fs::remove(partial_ / file, ignored);
}

void NewFolder::finish() {
  std::error_code error;
  fs::rename(partial_, folder_, error);  // also replaces an empty folder
  if (error) {
    throw Error(tag_,
                partial_.string() + " cannot become " + folder_.string() +
                    " (" + error.message() + ")",
                "name another folder", ExitCode::kResource);
  }
  partial_.clear();
}

}  // namespace headroom
