#include "deploy/fetch/weights_cache.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/file_kind.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::fetch {
namespace {

namespace fs = std::filesystem;

fs::path note_of(const fs::path& file) { return file.string() + ".json"; }

struct Note {
  std::string sha256;
  int64_t bytes = 0;
};

std::optional<Note> read_note(const fs::path& file) {
  const fs::path note = note_of(file);
  std::ifstream in(note);
  if (!in) return std::nullopt;
  const auto json = nlohmann::json::parse(in, nullptr, false);
  if (json.is_object() && json.contains("sha256") &&
      json["sha256"].is_string() && json.contains("bytes") &&
      json["bytes"].is_number_integer()) {
    return Note{json["sha256"], json["bytes"]};
  }
  throw Error("fetch", note.string() + " is damaged",
              "remove it; what is fetched then is noted as for the first time");
}

void write_note(const fs::path& file, const std::string& address,
                const std::string& sha256, const Answer& answer) {
  const nlohmann::ordered_json json = {
      {"address", address},    {"host", answer.host},
      {"bytes", answer.bytes}, {"sha256", sha256},
      {"etag", answer.etag},   {"last_modified", answer.last_modified},
      {"fetched", utc_now()}};
  write_whole_file(note_of(file), json.dump(2) + "\n");
}

// Describes the file `path`. was_there is false if there is no file, or if its
// digest differs from the note.
FetchedFile stored_file(const fs::path& path,
                        const std::optional<Note>& noted) {
  FetchedFile result;
  result.path = path;
  result.has_older_note = noted.has_value();
  std::error_code ignored;
  if (fs::exists(path, ignored)) {
    result.sha256 = sha256_of(path);
    result.bytes = static_cast<int64_t>(fs::file_size(path, ignored));
    result.was_there = !noted || noted->sha256 == result.sha256;
  }
  return result;
}

// Renames the complete `partial` to `file`, durably.
void put_in_place(const fs::path& partial, const fs::path& file) {
  std::error_code error;
  fs::rename(partial, file, error);
  if (!error && sync_folder(file.parent_path())) return;
  throw Error("fetch", file.string() + " cannot be written",
              "see who may write into its folder, and fetch again",
              ExitCode::kResource);
}

}  // namespace

void require_licence(const fs::path& folder,
                     const configs::PublishedWeights& weights, bool accepts) {
  const fs::path file = folder / "accepted_licences";
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line == weights.licence) return;
  }
  if (accepts) {
    // Append, because another fetch may write to this file at the same time.
    LineFile lines(file);
    lines.add(weights.licence);
    if (lines.write()) return;
    throw Error(
        "fetch",
        file.string() + " cannot be written (" + std::strerror(errno) + ")",
        "free some space, or see who may write into its folder",
        ExitCode::kResource);
  }
  throw Error("fetch",
              weights.name + " comes from " + weights.publisher + " under " +
                  weights.licence + " (" + weights.licence_text +
                  "), which you have not accepted yet",
              "read it, then add --accept-licence, once for all weights under "
              "it");
}

FetchedFile fetch_weights(const fs::path& folder, const std::string& name,
                          const std::string& address, const OnBytes& on_bytes) {
  const fs::path path = folder / name;
  FetchedFile result = stored_file(path, read_note(path));
  if (result.was_there) return result;
  const PartialFile locked(path.string() + kPartialSuffix);
  const fs::path& partial = locked.path();
  std::error_code ignored;
  // Read again: another process may have fetched it while this one waited.
  const std::optional<Note> noted = read_note(path);
  result = stored_file(path, noted);
  if (result.was_there) {
    fs::remove(partial, ignored);
    return result;
  }
  result.answer = download(address, locked, on_bytes);
  result.bytes = result.answer.bytes;
  result.sha256 = sha256_of(partial);
  try {
    require_weights(partial);
    if (noted && noted->sha256 != result.sha256) {
      throw Error(
          "fetch",
          cat(name, " is another file than at its first fetch: ",
              result.answer.host, " sent SHA-256 ", result.sha256, ", ",
              counted(result.bytes, "byte"), "; noted is ", noted->sha256, ", ",
              counted(noted->bytes, "byte")),
          "find out which one is right; to accept the new one, remove " +
              note_of(result.path).string() + " and fetch again");
    }
  } catch (const Error&) {
    fs::remove(partial, ignored);
    throw;
  }
  if (!noted) write_note(result.path, address, result.sha256, result.answer);
  put_in_place(partial, result.path);
  return result;
}

}  // namespace headroom::fetch
