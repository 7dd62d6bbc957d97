// The folder of this user for files that can be made or fetched again.
#pragma once

#include <filesystem>

namespace headroom {

// $XDG_CACHE_HOME/headroom, else ~/.cache/headroom; "" if neither
// XDG_CACHE_HOME nor HOME is an absolute path. The folder may not exist yet.
std::filesystem::path user_cache_folder();

}  // namespace headroom
