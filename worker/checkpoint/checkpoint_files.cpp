#include "worker/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "parallel/base/atomic_file.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::checkpoint {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

// Manifests of schema 1, from older versions, have no digest of themselves.
// Manifests of schema 3 name shards, which older versions cannot read.
constexpr int kSchema = 2;
constexpr int kSchemaOfShards = 3;
constexpr const char* kOwnDigest = "manifest_xxh3_128";
constexpr size_t kDigits = 32;
constexpr const char* kShardPrefix = "shard-";
// Space for the manifest, and for other files that the run writes at the same
// time.
constexpr int64_t kMarginBytes = 1 << 20;

std::string digest_of(const std::string& text) {
  StreamDigest digest;
  digest.add(text.data(), text.size());
  return digest.hex();
}

// The position of the manifest's own digest in its text; it must be the last
// entry. Returns npos if there is none.
size_t own_digest_at(const std::string& text) {
  const std::string key = '"' + std::string(kOwnDigest) + "\": \"";
  const size_t at = text.rfind(key);
  const bool is_last = at != std::string::npos &&
                       text.size() == at + key.size() + kDigits + 4 &&
                       text.ends_with("\"\n}\n");
  return is_last ? at + key.size() : std::string::npos;
}

// Adds the manifest's own digest, which is computed over the text with zeros in
// place of the digest.
std::string with_own_digest(OrderedJson manifest) {
  manifest[kOwnDigest] = std::string(kDigits, '0');
  std::string text = manifest.dump(2) + "\n";
  const size_t at = own_digest_at(text);
  HEADROOM_CHECK(at != std::string::npos, "the digest comes last");
  return text.replace(at, kDigits, digest_of(text));
}

void check_own_digest(const fs::path& path, const std::string& text,
                      bool must_have_it) {
  const size_t at = own_digest_at(text);
  if (at == std::string::npos) {
    if (!must_have_it && text.find(kOwnDigest) == std::string::npos) return;
    throw damaged_checkpoint(path, "is damaged: its own digest is missing");
  }
  std::string blank = text;
  blank.replace(at, kDigits, std::string(kDigits, '0'));
  const std::string digest = digest_of(blank);
  if (text.compare(at, kDigits, digest) != 0) {
    throw damaged_checkpoint(path, "is damaged: its digest is " + digest +
                                       ", it says " + text.substr(at, kDigits));
  }
}

void check_file(const fs::path& folder, const OrderedJson& entry) {
  const fs::path part = folder / entry.at("name").get<std::string>();
  std::error_code error;
  const uintmax_t size = fs::file_size(part, error);
  const uintmax_t expected = entry.at("bytes").get<uintmax_t>();
  if (error) throw damaged_checkpoint(part, "is missing");
  if (size != expected) {
    throw damaged_checkpoint(part, cat("has ", size, " bytes, not ", expected));
  }
  const std::string digest = file_digest(part);
  if (digest != entry.at("xxh3_128").get<std::string>()) {
    throw damaged_checkpoint(part, "is damaged: its digest is " + digest +
                                       ", the manifest says " +
                                       entry.at("xxh3_128").get<std::string>());
  }
}

// Keeps the newest `keep` finished checkpoints, and any newer than `step`.
void remove_old(const fs::path& checkpoints, int64_t step, int64_t keep) {
  int64_t kept = 0;
  for (const StepFolder& other : step_folders(checkpoints)) {
    if (other.is_finished() && kept < keep) {
      ++kept;
    } else if (other.step <= step) {
      remove_step_folder(other.path);
    }
  }
}

}  // namespace

void require_room(const fs::path& folder,
                  const std::vector<weights::TensorDescription>& tensors) {
  int64_t needed = kMarginBytes;
  for (const weights::TensorDescription& tensor : tensors) {
    auto bytes = static_cast<int64_t>(c10::elementSize(tensor.type));
    for (const int64_t size : tensor.sizes) bytes *= size;
    needed += bytes;
  }
  std::error_code error;
  const auto space = fs::space(folder, error);
  const auto free = static_cast<int64_t>(space.available);
  if (error || free >= needed) return;
  throw Error("checkpoint",
              folder.string() + " needs " + format_bytes(needed) +
                  ", but its disk has " + format_bytes(free) + " free",
              "free some space", ExitCode::kResource);
}

std::string shard_name(int rank) {
  return cat(kShardPrefix, rank, run_files::kWeightsSuffix);
}

bool is_shard_name(const std::string& name) {
  return name.starts_with(kShardPrefix) &&
         (name.ends_with(run_files::kWeightsSuffix) ||
          name.ends_with(kPartialSuffix));
}

bool StepFolder::is_finished() const {
  std::error_code error;
  return fs::exists(path / run_files::kManifest, error);
}

std::vector<StepFolder> step_folders(const fs::path& checkpoints) {
  std::vector<StepFolder> folders;
  std::error_code error;
  for (const fs::path& entry : entries_of(checkpoints, error)) {
    const std::string name = entry.filename().string();
    constexpr std::string_view kBegin = "step-";
    if (!name.starts_with(kBegin)) continue;
    if (const auto step = parse_whole(name.substr(kBegin.size()))) {
      folders.push_back({*step, entry});
    }
  }
  std::sort(
      folders.begin(), folders.end(),
      [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return folders;
}

Error damaged_checkpoint(const fs::path& file, const std::string& why) {
  return Error("checkpoint", file.string() + " " + why, "");
}

// The manifest is removed first: a folder without it is not a checkpoint.
void remove_step_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(folder, error))) return;
  for (const std::string name : {run_files::kManifest, run_files::kState}) {
    fs::remove(folder / name, error);
    fs::remove(folder / (name + kPartialSuffix), error);
  }
  for (const fs::path& file : entries_of(folder, error)) {
    if (is_shard_name(file.filename().string())) fs::remove(file, error);
  }
  fs::remove(folder, error);
}

std::string read_manifest(const fs::path& folder) {
  const fs::path path = folder / run_files::kManifest;
  const std::optional<std::string> read =
      text_of_file(path, kLargestWhole, Links::kFollowed);
  if (!read) {
    throw damaged_checkpoint(
        path, errno == ENOENT
                  ? "is missing: it was never finished"
                  : cat("cannot be read (", std::strerror(errno), ")"));
  }
  const std::string& text = *read;
  const OrderedJson manifest = OrderedJson::parse(text, nullptr, false);
  if (manifest.is_discarded() || !manifest.is_object() ||
      !manifest.contains("schema")) {
    throw damaged_checkpoint(path, "is not a checkpoint's manifest");
  }
  const OrderedJson& schema = manifest["schema"];
  if (schema != kSchema && schema != kSchemaOfShards && schema != 1) {
    throw damaged_checkpoint(
        path, cat("has schema ", schema.dump(), ", this build reads schema ",
                  kSchemaOfShards));
  }
  check_own_digest(path, text, schema != 1);
  for (const OrderedJson& entry : manifest.at("files"))
    check_file(folder, entry);
  return text;
}

std::vector<std::string> names_in(const std::string& manifest) {
  std::vector<std::string> names;
  const OrderedJson parsed = OrderedJson::parse(manifest);
  for (const OrderedJson& entry : parsed.at("files")) {
    names.push_back(entry.at("name").get<std::string>());
  }
  return names;
}

int64_t commit_manifest(const fs::path& folder, const CheckpointRecord& record,
                        const std::vector<StoredFile>& files, int64_t keep) {
  OrderedJson entries = OrderedJson::array();
  int64_t bytes = 0;
  int schema = kSchema;
  for (const StoredFile& file : files) {
    entries.push_back({{"name", file.name},
                       {"bytes", file.bytes},
                       {"xxh3_128", file.digest}});
    bytes += file.bytes;
    if (is_shard_name(file.name)) schema = kSchemaOfShards;
  }
  const std::string text =
      with_own_digest({{"schema", schema},
                       {"counters", OrderedJson::parse(record.counters)},
                       {"plan", OrderedJson::parse(record.plan)},
                       {"files", std::move(entries)}});
  write_whole_file(folder / run_files::kManifest, text);
  // The folder itself must be on disk before older checkpoints are removed.
  if (!sync_folder(folder.parent_path())) {
    throw Error("checkpoint",
                folder.string() + " cannot be brought to disk (" +
                    std::strerror(errno) + ")",
                "check the disk", ExitCode::kResource);
  }
  remove_old(folder.parent_path(), record.step, keep);
  return bytes + static_cast<int64_t>(text.size());
}

CheckpointFile::Folder::~Folder() {
  if (!StepFolder{0, path}.is_finished()) remove_step_folder(path);
}

CheckpointFile::CheckpointFile(const fs::path& checkpoints, int64_t step,
                               std::vector<weights::TensorDescription> tensors)
    : folder_(checkpoints / (cat("step-", step))), guard_{folder_} {
  std::error_code error;
  remove_step_folder(folder_);
  fs::create_directories(folder_, error);
  require_room(folder_, tensors);
  state_ = std::make_unique<weights::SafetensorsWriter>(
      folder_ / run_files::kState, std::move(tensors),
      std::map<std::string, std::string>{{"format", "headroom-checkpoint"}});
}

CheckpointFile::~CheckpointFile() = default;

void CheckpointFile::commit(const CheckpointRecord& record, int64_t keep) {
  state_->commit();
  num_bytes_ = commit_manifest(
      folder_, record,
      {{run_files::kState, state_->num_bytes(), state_->digest()}}, keep);
}

}  // namespace headroom::checkpoint
