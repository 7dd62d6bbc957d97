// What a file is that was named where another kind of file belongs: people name
// web pages that were saved for weights, and empty or half-fetched files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom {

// The bytes at a file's beginning that say what it is.
inline constexpr size_t kFileHeadBytes = 512;

// "a PNG image", "text (HTML or XML)", "UTF-16 text", "an empty file"; "" for
// what is none of the known kinds, as plain text is.
std::string foreign_kind(std::string_view head);

// The first bytes of a file; "" where it cannot be read.
std::string file_head(const std::filesystem::path& file);

// The one check of every reader of weights. Throws Error (exit 2) where `file`
// is not there, or neither safetensors nor a checkpoint of PyTorch, and says
// what it is instead: "w.pt is text (HTML or XML), not weights". `without`
// ends the remedy of a file that is not there: ", or leave --weights out".
void require_weights(const std::filesystem::path& file,
                     const std::string& without = "");

}  // namespace headroom
