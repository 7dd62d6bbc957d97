#include "parallel/base/file_kind.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>

#include "parallel/base/check.h"

namespace headroom {
namespace {

struct Signature {
  std::string_view bytes;
  ForeignKind kind;
};

constexpr std::array kSignatures{
    Signature{"version https://git-lfs", ForeignKind::kLfsPointer},
    Signature{"\xFF\xFE", ForeignKind::kUtf16},
    Signature{"\xFE\xFF", ForeignKind::kUtf16},
    Signature{"\xFF\xD8\xFF", ForeignKind::kJpeg},
    Signature{"\x89PNG", ForeignKind::kPng},
    Signature{"GIF8", ForeignKind::kGif},
    Signature{std::string_view("II*\0", 4), ForeignKind::kTiff},
    Signature{std::string_view("MM\0*", 4), ForeignKind::kTiff},
    Signature{"%PDF", ForeignKind::kPdf},
    Signature{"PK\x03\x04", ForeignKind::kZip},
    Signature{"\x1F\x8B", ForeignKind::kGzip},
    Signature{"7z\xBC\xAF", ForeignKind::k7z},
    Signature{"Rar!", ForeignKind::kRar},
    Signature{"\x89HDF", ForeignKind::kHdf5},
    Signature{"ftrt", ForeignKind::kTensorRt}};

// An ONNX file is a protobuf message that begins with the version (field 1, a
// small number) and the producer's name (field 2).
bool is_onnx(std::string_view head) {
  return head.size() > 4 && head[0] == '\x08' && head[1] > 0 && head[1] < 32 &&
         head[2] == '\x12';
}

ForeignKind kind_of_container(std::string_view head) {
  if (head.starts_with("RIFF") && head.substr(8).starts_with("WEBP")) {
    return ForeignKind::kWebp;
  }
  if (is_onnx(head)) return ForeignKind::kOnnx;
  if (!head.substr(4).starts_with("ftyp")) return ForeignKind::kNone;
  const std::string_view brand = head.substr(8, 4);
  if (brand.starts_with("hei") || brand == "mif1") return ForeignKind::kHeic;
  return brand == "avif" ? ForeignKind::kAvif : ForeignKind::kVideo;
}

bool is_plain_text(std::string_view head) {
  return std::ranges::none_of(head, [](unsigned char c) {
    return (c < ' ' && c != '\n' && c != '\r' && c != '\t') || c == 0x7F;
  });
}

// Archives of torch.jit.save list constants.pkl; those of torch.save do not.
bool is_torchscript(const std::filesystem::path& file) {
  constexpr std::streamoff kDirectoryBytes = 256 << 10;
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const std::streamoff size = in.tellg();
  const std::streamoff begin =
      std::max<std::streamoff>(0, size - kDirectoryBytes);
  std::string directory(
      static_cast<size_t>(std::max<std::streamoff>(0, size - begin)), '\0');
  in.seekg(begin);
  in.read(directory.data(), static_cast<std::streamsize>(directory.size()));
  return directory.find("/constants.pkl") != std::string::npos;
}

// A safetensors file begins with the length of its JSON header (8 bytes, of
// which the two highest are zero here), then the header.
bool begins_like_safetensors(std::string_view head) {
  return head.size() > 8 && head[8] == '{' && head[6] == 0 && head[7] == 0;
}

bool is_exported(ForeignKind kind) {
  return kind == ForeignKind::kOnnx || kind == ForeignKind::kTensorRt ||
         kind == ForeignKind::kTorchScript;
}

// Why a file cannot hold weights, and its recognised kind.
struct NoWeights {
  std::string reason;  // "a PNG image, not weights"
  ForeignKind kind = ForeignKind::kNone;
};

// Returns why the file holds no weights, or no value if it may hold some.
std::optional<NoWeights> look_for_weights(const std::filesystem::path& file) {
  const auto instead = [](const std::string& what, ForeignKind kind) {
    return NoWeights{what + ", not weights", kind};
  };
  const std::string head = file_head(file);
  if (head.starts_with("PK\x03\x04")) {
    if (!is_torchscript(file)) return std::nullopt;
    return instead(to_string(ForeignKind::kTorchScript),
                   ForeignKind::kTorchScript);
  }
  if (head.starts_with('\x80')) return std::nullopt;  // PyTorch before 1.6
  // Check this before the signatures: the length at the start of a safetensors
  // file may have the same bytes as a signature.
  if (begins_like_safetensors(head)) return std::nullopt;
  const ForeignKind kind = foreign_kind(head);
  if (kind != ForeignKind::kNone) return instead(to_string(kind), kind);
  if (is_plain_text(head)) return instead("text", kind);
  return NoWeights{"damaged, or neither safetensors nor a checkpoint", kind};
}

}  // namespace

std::string to_string(ForeignKind kind) {
  switch (kind) {
    case ForeignKind::kNone:
      return "";
    case ForeignKind::kEmpty:
      return "an empty file";
    case ForeignKind::kMarkup:
      return "text (HTML or XML)";
    case ForeignKind::kUtf16:
      return "UTF-16 text";
    case ForeignKind::kLfsPointer:
      return "a Git LFS pointer";
    case ForeignKind::kJpeg:
      return "a JPEG image";
    case ForeignKind::kPng:
      return "a PNG image";
    case ForeignKind::kGif:
      return "a GIF image";
    case ForeignKind::kTiff:
      return "a TIFF image";
    case ForeignKind::kWebp:
      return "a WebP image";
    case ForeignKind::kHeic:
      return "a HEIC image";
    case ForeignKind::kAvif:
      return "an AVIF image";
    case ForeignKind::kVideo:
      return "an MP4 video";
    case ForeignKind::kOnnx:
      return "an ONNX network";
    case ForeignKind::kTensorRt:
      return "a TensorRT engine";
    case ForeignKind::kTorchScript:
      return "a TorchScript network";
    case ForeignKind::kPdf:
      return "a PDF document";
    case ForeignKind::kZip:
      return "a ZIP archive";
    case ForeignKind::kGzip:
      return "a gzip archive";
    case ForeignKind::k7z:
      return "a 7z archive";
    case ForeignKind::kRar:
      return "a RAR archive";
    case ForeignKind::kHdf5:
      return "an HDF5 file";
  }
  return "";
}

bool is_image(ForeignKind kind) {
  switch (kind) {
    case ForeignKind::kJpeg:
    case ForeignKind::kPng:
    case ForeignKind::kGif:
    case ForeignKind::kTiff:
    case ForeignKind::kWebp:
    case ForeignKind::kHeic:
    case ForeignKind::kAvif:
      return true;
    default:
      return false;
  }
}

ForeignKind foreign_kind(std::string_view head) {
  if (head.empty()) return ForeignKind::kEmpty;
  for (const Signature& signature : kSignatures) {
    if (head.starts_with(signature.bytes)) return signature.kind;
  }
  if (head.size() >= 12) {
    const ForeignKind kind = kind_of_container(head);
    if (kind != ForeignKind::kNone) return kind;
  }
  const size_t begin = head.find_first_not_of("\xEF\xBB\xBF \t\r\n");
  const bool is_markup = begin != std::string_view::npos && head[begin] == '<';
  return is_markup ? ForeignKind::kMarkup : ForeignKind::kNone;
}

std::string file_head(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string head(kFileHeadBytes, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(in.gcount()));
  return head;
}

void require_weights(const std::filesystem::path& file,
                     const std::string& without) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    throw Error(
        "weights", "there is no file " + file.string(),
        "nothing is downloaded: get the file, YOLOv5's own with headroom "
        "fetch, and give its path" +
            without);
  }
  // Opening a pipe would block until another process opens its other end.
  if (!std::filesystem::is_regular_file(file, error)) {
    throw Error("weights", file.string() + ": it is no regular file",
                "name a .safetensors or .pt file");
  }
  const auto refusal = look_for_weights(file);
  if (!refusal) return;
  throw Error("weights", file.string() + " is " + refusal->reason,
              is_exported(refusal->kind)
                  ? "exported networks are not read back: name the "
                    ".safetensors or .pt file that it was made from"
                  : "name a .safetensors file, or YOLOv5's .pt");
}

}  // namespace headroom
