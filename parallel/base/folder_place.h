// FolderPlace: on which machine the folder of a run is, and the two small files
// from which a program on any machine finds that out.
//
// Rank 0 writes the run's folder. On machines that share the folder, everybody
// sees what rank 0 wrote. On machines that do not, a path alone is not enough:
// the folder of that path on another machine is missing, has an older state
// (rank 0 was there before), or belongs to another run.
//
//   RUN/.written-by    in the folder, from rank 0: the run, and each agent of
//                      a rank 0 that wrote there. Not only the last one: it may
//                      be lost between its mark and its first step.
//   RUN/.elsewhere     on a machine that does not have the newest state, from
//                      the programs that ended there: where that state is
//
// The second file is a note for --resume and `headroom status`. It counts only
// while the copy of the run here is older (deploy/records/older_copy.h).
//
// Threads: none of their own. Errors: a file that cannot be read counts as
// missing, and so does a note of which a command could not be made safely;
// write_folder_mark() throws as write_whole_file() does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace headroom {

inline constexpr const char* kWrittenBy = ".written-by";
inline constexpr const char* kElsewhere = ".elsewhere";

struct FolderPlace {
  std::string run_id = {};    // drawn by the run's first coordinator
  std::string hostname = {};  // "" before the first committed step
  std::string node_id = {};  // the agent whose worker, rank 0, wrote there last
  int64_t steps = 0;         // committed steps

  bool is_known() const { return !hostname.empty(); }
  bool operator==(const FolderPlace&) const = default;
};

// This machine's name, as its agent registers it.
std::string this_host_name();

// Marks `run_directory` as written by this agent of this run, and removes a
// note that the newest state is elsewhere.
void write_folder_mark(const std::filesystem::path& run_directory,
                       const std::string& run_id, const std::string& node_id);
// Whether a run has begun there and is not this one. False if that cannot be
// read.
bool belongs_to_other_run(const std::filesystem::path& run_directory,
                          const std::string& run_id);
// Whether the folder of `place` is on another machine, and `run_directory` here
// is neither that folder, shared, nor a copy of it.
bool is_elsewhere(const std::filesystem::path& run_directory,
                  const FolderPlace& place);

// Leaves the note, and makes the folder for it. A failure has no effect.
void leave_note(const std::filesystem::path& run_directory,
                const FolderPlace& place) noexcept;
// The place of the newest state, as the note says it. Returns nullopt if there
// is no note, or if it names this machine.
std::optional<FolderPlace> noted_elsewhere(
    const std::filesystem::path& run_directory);

// "the newest state of RUN, after 40 steps, is on HOST, not on this machine",
// and what to type: "type commands for it there, or bring it here: rsync ...".
std::string where_it_is(const std::string& run_directory,
                        const FolderPlace& place);
std::string how_to_reach_it(const std::string& run_directory,
                            const FolderPlace& place);

}  // namespace headroom
