// file_digest: XXH3-128 of a whole file, as 32 lower-case hex digits.
//
// safetensors has no checksum of its own; manifests keep this one beside each
// file, and a file whose digest differs is refused.
//
// Errors: Error naming the file when it cannot be read.
// Threads: any.
#pragma once

#include <filesystem>
#include <string>

namespace headroom {

std::string file_digest(const std::filesystem::path& path);

}  // namespace headroom
