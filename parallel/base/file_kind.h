// What a file is that was named where another kind of file belongs: people name
// web pages that were saved for weights, and empty or half-fetched files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom {

// The bytes at a file's beginning that say what it is.
inline constexpr size_t kFileHeadBytes = 512;

enum class ForeignKind {
  kNone,  // none of the known kinds, as plain text is
  kEmpty,
  kMarkup,
  kUtf16,
  kLfsPointer,
  // Images, of formats that are read and of others.
  kJpeg,
  kPng,
  kGif,
  kTiff,
  kWebp,
  kHeic,
  kAvif,
  kVideo,
  // Networks that were exported.
  kOnnx,
  kTensorRt,
  kTorchScript,
  // Documents and archives.
  kPdf,
  kZip,
  kGzip,
  k7z,
  kRar,
  kHdf5,
};

// "a PNG image", "text (HTML or XML)", "UTF-16 text", "an empty file"; "" for
// kNone.
std::string to_string(ForeignKind kind);

bool is_image(ForeignKind kind);

// Tells the kind by the bytes at the file's beginning, which do not tell a
// TorchScript network from another archive.
ForeignKind foreign_kind(std::string_view head);

// The first bytes of a file; "" where it cannot be read.
std::string file_head(const std::filesystem::path& file);

// The one check of every reader of weights. Throws Error (exit 2) where `file`
// is not there, or neither safetensors nor a checkpoint of PyTorch, and says
// what it is instead: "w.pt is text (HTML or XML), not weights". `without`
// ends the remedy of a file that is not there: ", or leave --weights out".
void require_weights(const std::filesystem::path& file,
                     const std::string& without = "");

}  // namespace headroom
