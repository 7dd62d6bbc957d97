// Archives and pickles made by hand: files that torch.save would write, and
// files it never would.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::pytorch_file {

struct ArchiveEntry {
  std::string name;
  std::string bytes;
  uint16_t method = 0;
  // The size claimed by the directory; -1 for the true one.
  int64_t claimed_bytes = -1;
  int64_t claimed_stored_bytes = -1;
  int64_t claimed_offset = -1;
  uint16_t flags = 0;
};

std::string make_archive(const std::vector<ArchiveEntry>& entries);

// Instructions of a pickle. `global("os", "system")` and so on.
namespace pickled {
std::string text(const std::string& value);
std::string integer(int32_t value);
std::string tuple(const std::vector<std::string>& items);
std::string dict(const std::vector<std::string>& keys_and_values);
std::string global(const std::string& module, const std::string& name);
std::string call(const std::string& function, const std::string& arguments);
std::string object(const std::string& type, const std::string& state);
std::string tensor(const std::string& storage_type, const std::string& key,
                   int32_t storage_size, int32_t offset,
                   const std::vector<int32_t>& sizes,
                   const std::vector<int32_t>& strides);
// A module with these parameters and children.
std::string module(const std::string& type,
                   const std::vector<std::string>& parameters,
                   const std::vector<std::string>& children);
std::string whole(const std::string& value);  // with its begin and end
}  // namespace pickled

}  // namespace headroom::pytorch_file
