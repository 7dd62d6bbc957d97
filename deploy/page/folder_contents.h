// The files of a run directory as the page's script receives them: texts of
// files, which another process may still be writing, and lists of names. Memory
// is bounded for files of any size; a file that is missing or too large is an
// empty text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace headroom::page {

// The lines of events.jsonl that the page draws, oldest first: the first event,
// the newest generation, and the newest `most` events. A line above 64 KiB
// loses its lists and objects, except the line of the newest generation. For
// lines before the newest 512 KiB the limit is 4 KiB. If the file has more than
// 16 MiB, only its end is read.
std::string events_text(const std::filesystem::path& run_directory,
                        size_t most);

struct Picture {
  std::string name;
  int64_t bytes = 0;
  int64_t time = 0;  // when it was written, in Unix seconds
};
// The newest 200 pictures of the folder, newest first.
std::vector<Picture> pictures_in(const std::filesystem::path& run_directory);

// A text that changes when one of the files that the page shows changes.
// steps.jsonl changes with each step, so steps_bytes() covers it instead.
std::string stamp_of(const std::filesystem::path& run_directory);
int64_t steps_bytes(const std::filesystem::path& run_directory);

}  // namespace headroom::page
