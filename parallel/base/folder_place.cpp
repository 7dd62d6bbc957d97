#include "parallel/base/folder_place.h"

#include <unistd.h>

#include <sstream>
#include <system_error>

#include "parallel/base/atomic_file.h"
#include "parallel/base/numbered_folder.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

std::string text_in(const fs::path& file) {
  return text_or_none(file, Links::kRefused);
}

std::string mark_of(const std::string& run_id, const std::string& node_id) {
  return run_id + " " + node_id + "\n";
}

bool has_mark(const std::string& marks, const std::string& run_id,
              const std::string& node_id) {
  return ("\n" + marks).find("\n" + mark_of(run_id, node_id)) !=
         std::string::npos;
}

}  // namespace

std::string this_host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

void write_folder_mark(const fs::path& run_directory, const std::string& run_id,
                       const std::string& node_id) {
  std::string marks = text_in(run_directory / kWrittenBy);
  if (!marks.starts_with(run_id + " ")) marks.clear();
  if (!has_mark(marks, run_id, node_id)) marks += mark_of(run_id, node_id);
  write_whole_file(run_directory / kWrittenBy, marks);
  std::error_code ignored;
  fs::remove(run_directory / kElsewhere, ignored);
}

bool belongs_to_other_run(const fs::path& run_directory,
                          const std::string& run_id) {
  const fs::path file = run_directory / kWrittenBy;
  std::error_code error;
  if (!fs::exists(file, error)) {
    return !error && is_begun_run_folder(run_directory);
  }
  const std::string mark = text_in(file);
  return !mark.empty() && !mark.starts_with(run_id + " ");
}

bool is_elsewhere(const fs::path& run_directory, const FolderPlace& place) {
  return place.is_known() && place.hostname != this_host_name() &&
         !has_mark(text_in(run_directory / kWrittenBy), place.run_id,
                   place.node_id);
}

void leave_note(const fs::path& run_directory,
                const FolderPlace& place) noexcept {
  try {
    fs::create_directories(run_directory);
    write_whole_file(run_directory / kElsewhere,
                     cat(place.run_id, "\n", place.hostname, "\n",
                         place.node_id, "\n", place.steps, "\n"));
  } catch (const std::exception&) {
    // The program also prints what the note says.
  }
}

std::optional<FolderPlace> noted_elsewhere(const fs::path& run_directory) {
  std::istringstream note(text_in(run_directory / kElsewhere));
  FolderPlace place;
  if (!(note >> place.run_id >> place.hostname >> place.node_id >>
        place.steps) ||
      place.hostname.starts_with('-') ||
      place.hostname != printable(place.hostname) ||
      place.hostname == this_host_name()) {
    return std::nullopt;
  }
  return place;
}

std::string where_it_is(const std::string& run_directory,
                        const FolderPlace& place) {
  return cat("the newest state of ", run_directory, ", after ",
             counted(place.steps, "step"), ", is on ", place.hostname,
             ", not on this machine");
}

std::string how_to_reach_it(const std::string& run_directory,
                            const FolderPlace& place) {
  const std::string folder = run_directory + "/";
  return "type commands for it there, or bring it here first: rsync -a " +
         shell_word(place.hostname + ":" + folder) + " " + shell_word(folder);
}

}  // namespace headroom
