#include "worker/data/labels/json_text.h"

#include <fstream>
#include <system_error>

#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "parallel/base/units.h"

namespace headroom::labels {

std::string read_json_text(const std::filesystem::path& file,
                           const std::string& what) {
  const auto refuse_file = [&file](const std::string& why,
                                   const std::string& remedy) {
    throw Error("data", file.string() + ": " + why, remedy, ExitCode::kData);
  };
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    refuse_file("there is no such file", "correct the path");
  }
  const auto bytes =
      static_cast<int64_t>(std::filesystem::file_size(file, error));
  if (error || bytes > kMostJsonBytes) {
    refuse_file(format_bytes(bytes) + " are above the limit of 4 GiB",
                "split the file");
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  std::ifstream stream(file, std::ios::binary);
  if (!stream.read(text.data(), static_cast<std::streamsize>(bytes))) {
    refuse_file("it cannot be read", "correct its permissions");
  }
  const std::string kind =
      to_string(foreign_kind(std::string_view(text).substr(0, kFileHeadBytes)));
  if (!kind.empty()) {
    refuse_file("it is " + kind + ", not " + what + " in UTF-8",
                "name the right file");
  }
  return text;
}

std::string json_error_text(const nlohmann::json::exception& error) {
  const std::string_view text = error.what();
  const size_t colon = text.find(": ");
  return "no JSON (" +
         std::string(text.substr(colon == text.npos ? 0 : colon + 2, 120)) +
         ")";
}

}  // namespace headroom::labels
