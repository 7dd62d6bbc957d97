#include "parallel/base/file_kind.h"

#include <algorithm>
#include <array>
#include <fstream>

#include "parallel/base/check.h"

namespace headroom {
namespace {

struct Signature {
  std::string_view bytes;
  const char* kind;
};

constexpr std::array kSignatures{
    Signature{"version https://git-lfs", "a Git LFS pointer"},
    Signature{"\xFF\xFE", "UTF-16 text"},
    Signature{"\xFE\xFF", "UTF-16 text"},
    Signature{"\xFF\xD8\xFF", "a JPEG image"},
    Signature{"\x89PNG", "a PNG image"},
    Signature{"GIF8", "a GIF image"},
    Signature{std::string_view("II*\0", 4), "a TIFF image"},
    Signature{std::string_view("MM\0*", 4), "a TIFF image"},
    Signature{"%PDF", "a PDF document"},
    Signature{"PK\x03\x04", "a ZIP archive"},
    Signature{"\x1F\x8B", "a gzip archive"},
    Signature{"7z\xBC\xAF", "a 7z archive"},
    Signature{"Rar!", "a RAR archive"},
    Signature{"\x89HDF", "an HDF5 file"},
    Signature{"ftrt", "a TensorRT engine"}};

// A protobuf of ONNX begins with its version (field 1, a small number) and the
// producer's name (field 2).
bool is_onnx(std::string_view head) {
  return head.size() > 4 && head[0] == '\x08' && head[1] > 0 && head[1] < 32 &&
         head[2] == '\x12';
}

std::string kind_of_container(std::string_view head) {
  if (head.starts_with("RIFF") && head.substr(8).starts_with("WEBP")) {
    return "a WebP image";
  }
  if (is_onnx(head)) return "an ONNX network";
  if (!head.substr(4).starts_with("ftyp")) return "";
  const std::string_view brand = head.substr(8, 4);
  if (brand.starts_with("hei") || brand == "mif1") return "a HEIC image";
  return brand == "avif" ? "an AVIF image" : "an MP4 video";
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

// The length of a JSON header, 8 bytes of which the high ones are zero, and the
// header.
bool begins_like_safetensors(std::string_view head) {
  return head.size() > 8 && head[8] == '{' && head[6] == 0 && head[7] == 0;
}

// What `file` is instead of weights; "" for what may be weights.
std::string kind_instead_of_weights(const std::filesystem::path& file) {
  const std::string head = file_head(file);
  if (head.starts_with("PK\x03\x04")) {
    return is_torchscript(file) ? "a TorchScript network" : "";
  }
  if (head.starts_with('\x80')) return "";  // PyTorch before 1.6
  // First: a length may begin as another format does.
  if (begins_like_safetensors(head)) return "";
  const std::string kind = foreign_kind(head);
  if (!kind.empty()) return kind;
  if (is_plain_text(head)) return "text";
  return "damaged, or neither safetensors nor a checkpoint";
}

bool is_exported(std::string_view kind) {
  return kind.ends_with("network") || kind.ends_with("engine");
}

}  // namespace

std::string foreign_kind(std::string_view head) {
  if (head.empty()) return "an empty file";
  for (const Signature& signature : kSignatures) {
    if (head.starts_with(signature.bytes)) return signature.kind;
  }
  if (head.size() >= 12) {
    if (std::string kind = kind_of_container(head); !kind.empty()) return kind;
  }
  const size_t begin = head.find_first_not_of("\xEF\xBB\xBF \t\r\n");
  const bool is_markup = begin != std::string_view::npos && head[begin] == '<';
  return is_markup ? "text (HTML or XML)" : "";
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
    throw Error("weights", "there is no file " + file.string(),
                "nothing is downloaded: get the file, YOLOv5's own from its "
                "releases, and give its path" +
                    without);
  }
  // A pipe would wait for its other end for ever.
  if (!std::filesystem::is_regular_file(file, error)) {
    throw Error("weights", file.string() + ": it is no regular file",
                "name a .safetensors or .pt file");
  }
  const std::string kind = kind_instead_of_weights(file);
  if (kind.empty()) return;
  const bool is_damaged = kind.starts_with("damaged");
  throw Error(
      "weights",
      file.string() + " is " + kind + (is_damaged ? "" : ", not weights"),
      is_exported(kind) ? "exported networks are not read back: name the "
                          ".safetensors or .pt file that it was made from"
                        : "name a .safetensors file, or YOLOv5's .pt");
}

}  // namespace headroom
