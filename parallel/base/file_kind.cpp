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
    Signature{"\x89HDF", "an HDF5 file"}};

std::string kind_of_container(std::string_view head) {
  if (head.starts_with("RIFF") && head.substr(8).starts_with("WEBP")) {
    return "a WebP image";
  }
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

void require_no_foreign_weights(const std::filesystem::path& file) {
  const std::string head = file_head(file);
  std::string kind = foreign_kind(head);
  if (kind.empty() && is_plain_text(head)) kind = "text";
  if (kind.empty()) return;
  throw Error("weights", file.string() + " is " + kind + ", not weights",
              "name a .safetensors file, or YOLOv5's .pt");
}

}  // namespace headroom
