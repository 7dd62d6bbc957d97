// Recognises a file of another kind where weights or images were expected:
// users pass web pages saved as weights, and empty or half-downloaded files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace headroom {

// How many bytes from the beginning of a file are enough to recognise its kind.
inline constexpr size_t kFileHeadBytes = 512;

enum class ForeignKind {
  kNone,  // none of the kinds below, for example plain text
  kEmpty,
  kMarkup,
  kUtf16,
  kLfsPointer,
  // Image formats, supported or not.
  kJpeg,
  kPng,
  kGif,
  kTiff,
  kWebp,
  kHeic,
  kAvif,
  kVideo,
  // Exported networks.
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

// "a PNG image", "text (HTML or XML)", "an empty file"; "" for kNone.
std::string to_string(ForeignKind kind);

bool is_image(ForeignKind kind);

// Recognises the kind from the first bytes of a file. A TorchScript network
// looks like any other zip archive here.
ForeignKind foreign_kind(std::string_view head);

// The first kFileHeadBytes of a file, or fewer; "" if it cannot be read.
std::string file_head(const std::filesystem::path& file);

// The check that every reader of weights makes first. Throws Error (exit 2) if
// `file` does not exist or is neither safetensors nor a PyTorch checkpoint; the
// message names the kind that was found: "w.pt is text (HTML or XML), not
// weights". `without` is appended to the remedy for a missing file: ", or leave
// --weights out".
void require_weights(const std::filesystem::path& file,
                     const std::string& without = "");

}  // namespace headroom
