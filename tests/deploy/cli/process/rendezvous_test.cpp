#include "deploy/cli/process/rendezvous.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "parallel/base/check.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

using testing::TemporaryFolder;

LauncherPlace place_of(int size, int local_size) {
  return {.launcher = "mpirun",
          .rank = 0,
          .size = size,
          .local_rank = 0,
          .local_size = local_size,
          .job_id = "77-ab"};
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    return error.what();
  }
  return "accepted";
}

TEST(Rendezvous, OneHostMeetsInAPrivateFolderNamedAfterTheJob) {
  const RendezvousFolder folder =
      rendezvous_folder(place_of(2, 2), "", "/tmp", 1000);
  EXPECT_EQ(folder.path, "/tmp/headroom-1000-77-ab");
  EXPECT_TRUE(folder.is_private);
}

TEST(Rendezvous, TheFlagNamesAFolderForSeveralHosts) {
  const RendezvousFolder folder =
      rendezvous_folder(place_of(4, 2), "/shared/runs", "/tmp", 1000);
  EXPECT_EQ(folder.path, "/shared/runs");
  EXPECT_FALSE(folder.is_private);
}

TEST(Rendezvous, SeveralHostsWithoutAFolderAreRefused) {
  EXPECT_EQ(
      refusal([] { rendezvous_folder(place_of(4, 2), "", "/tmp", 1000); }),
      "[rendezvous] 2 of 4 processes are on this host and nothing says where "
      "the others find the coordinator: give --rendezvous DIR, a folder that "
      "all hosts share, or --coordinator HOST:PORT");
}

TEST(Rendezvous, AJobWithoutANameCannotMeetInAFolder) {
  LauncherPlace place = place_of(2, 2);
  place.job_id.clear();
  EXPECT_EQ(refusal([&] { rendezvous_folder(place, "", "/tmp", 1000); }),
            "[rendezvous] mpirun gives its job no name, so its 2 processes "
            "cannot meet in a folder: give --coordinator HOST:PORT, an address "
            "of rank 0's host");
}

TEST(Rendezvous, AnAddressIsFoundOncePublished) {
  const TemporaryFolder root;
  const RendezvousFolder folder{root.path() / "meet", false};
  const auto hold = prepare_folder(folder, geteuid());
  EXPECT_FALSE(read_address(folder, "job"));
  publish_address(folder, "job", {"10.0.0.5:29500", ""});
  EXPECT_EQ(read_address(folder, "job")->address, "10.0.0.5:29500");
  publish_address(folder, "job", {"10.0.0.5:29501", ""});
  EXPECT_EQ(read_address(folder, "job")->address, "10.0.0.5:29501");
}

TEST(Rendezvous, AFileOfAnotherJobIsNotMistaken) {
  const TemporaryFolder root;
  const RendezvousFolder folder{root.path(), false};
  publish_address(folder, "earlier", {"10.0.0.5:1", ""});
  EXPECT_FALSE(read_address(folder, "later"));
}

TEST(Rendezvous, ANonsensicalFileIsRefused) {
  const TemporaryFolder root;
  root.write("headroom-job.address", "no address\n");
  EXPECT_EQ(refusal([&] {
              read_address({root.path(), false}, "job");
            }),
            "[rendezvous] " + root.path().string() +
                " holds no address in headroom-job.address: give another "
                "--rendezvous DIR");
}

TEST(Rendezvous, ThePrivateFolderIsForItsOwnerAlone) {
  const TemporaryFolder root;
  const RendezvousFolder folder{root.path() / "private", true};
  const auto first = prepare_folder(folder, geteuid());
  // The second process of the job makes the same call.
  const auto second = prepare_folder(folder, geteuid());
  struct stat found {};
  ASSERT_EQ(stat(folder.path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);

  ASSERT_EQ(chmod(folder.path.c_str(), 0755), 0);
  EXPECT_EQ(refusal([&] { (void)prepare_folder(folder, geteuid()); }),
            "[rendezvous] " + folder.path.string() +
                " is open to other users: remove it, or give --rendezvous DIR");
}

TEST(Rendezvous, AFolderOfAnotherUserOrALinkIsNotUsed) {
  const TemporaryFolder root;
  const RendezvousFolder folder{root.path() / "private", true};
  const auto hold = prepare_folder(folder, geteuid());
  EXPECT_NE(refusal([&] {
              (void)prepare_folder(folder, geteuid() + 1);
            }).find("belongs to user"),
            std::string::npos);

  const RendezvousFolder link{root.path() / "link", true};
  std::filesystem::create_directory_symlink(folder.path, link.path);
  EXPECT_NE(refusal([&] {
              (void)prepare_folder(link, geteuid());
            }).find("is no folder"),
            std::string::npos);
}

TEST(Rendezvous, WithdrawingLeavesNothingOfAPrivateFolder) {
  const TemporaryFolder root;
  const RendezvousFolder folder{root.path() / "private", true};
  const auto hold = prepare_folder(folder, geteuid());
  publish_address(folder, "job", {"127.0.0.1:29500", ""});
  withdraw_address(folder, "job");
  EXPECT_FALSE(std::filesystem::exists(folder.path));
}

// A killed job leaves its folder behind; the next job removes the folder.
TEST(Rendezvous, FoldersWithoutAHolderAreRemoved) {
  const TemporaryFolder root;
  const auto folder_of = [&](const std::string& job) {
    LauncherPlace place = place_of(2, 2);
    place.job_id = job;
    return rendezvous_folder(place, "", root.path(), geteuid());
  };
  {
    const auto killed = prepare_folder(folder_of("dead"), geteuid());
    publish_address(folder_of("dead"), "dead", {"127.0.0.1:29500", ""});
  }
  root.write("headroom-other", "no folder");
  const std::string mine = "headroom-" + std::to_string(geteuid()) + "-mine";
  root.write(mine + "/notes.txt", "mine");
  const auto living = prepare_folder(folder_of("living"), geteuid());
  EXPECT_FALSE(std::filesystem::exists(folder_of("dead").path));
  const auto next = prepare_folder(folder_of("next"), geteuid());
  EXPECT_TRUE(std::filesystem::exists(folder_of("living").path));
  EXPECT_TRUE(std::filesystem::exists(root.path() / "headroom-other"));
  EXPECT_EQ(root.read(mine + "/notes.txt"), "mine");
}

// If a process arrives while another one removes the job's unused folder, the
// process creates the folder again, and never mistakes it for the folder of
// another user.
TEST(Rendezvous, ProcessesThatStartAndEndTogetherFindEachOther) {
  const TemporaryFolder root;
  const RendezvousFolder folder =
      rendezvous_folder(place_of(2, 2), "", root.path(), geteuid());
  const auto come_and_go = [&] {
    return refusal([&] {
      for (int i = 0; i < 1000; ++i) (void)prepare_folder(folder, geteuid());
    });
  };
  std::vector<std::future<std::string>> ends;
  for (int process = 0; process < 4; ++process) {
    ends.push_back(std::async(std::launch::async, come_and_go));
  }
  for (auto& end : ends) EXPECT_EQ(end.get(), "accepted");
}

// One job searches for folders that were left behind, and is stopped at a
// random point, mostly between two system calls. Meanwhile the folder that it
// looks at is removed and created again. The job must not remove the new
// folder.
TEST(Rendezvous, TheFolderOfALivingJobIsNotTakenForOneLeftBehind) {
  const TemporaryFolder root;
  const auto folder_of = [&](const std::string& job) {
    LauncherPlace place = place_of(2, 2);
    place.job_id = job;
    return rendezvous_folder(place, "", root.path(), geteuid());
  };
  const RendezvousFolder folder = folder_of("living");
  const pid_t looking = fork();
  if (looking == 0) {
    for (;;) (void)prepare_folder(folder_of("looking"), geteuid());
  }
  int num_removed = 0;
  for (int i = 0; i < 300; ++i) {
    auto hold = prepare_folder(folder, geteuid());
    publish_address(folder, "living", {"127.0.0.1:29500", ""});
    kill(looking, SIGSTOP);
    waitpid(looking, nullptr, WUNTRACED);
    hold.reset();  // as if the job were killed and started again
    hold = prepare_folder(folder, geteuid());
    publish_address(folder, "living", {"127.0.0.1:29500", ""});
    kill(looking, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!read_address(folder, "living")) ++num_removed;
  }
  kill(looking, SIGKILL);
  waitpid(looking, nullptr, 0);
  EXPECT_EQ(num_removed, 0);
}

TEST(Rendezvous, AnAddressThatCannotBePublishedIsRefusedInOneLine) {
  const TemporaryFolder root;
  root.write("headroom-job.address/file", "in the way");
  EXPECT_EQ(refusal([&] {
              publish_address({root.path(), false}, "job", {"a:1", ""});
            }),
            "[rendezvous] " + root.path().string() +
                " cannot be written to: give another --rendezvous DIR");
}

TEST(Rendezvous, AFolderThatHeadroomDidNotMakeIsNotUsed) {
  const TemporaryFolder root;
  const RendezvousFolder folder{root.path() / "private", true};
  root.write("private/notes.txt", "mine");
  ASSERT_EQ(chmod(folder.path.c_str(), 0700), 0);
  EXPECT_EQ(refusal([&] { (void)prepare_folder(folder, geteuid()); }),
            "[rendezvous] " + folder.path.string() +
                " was not made by headroom: remove it, or give --rendezvous "
                "DIR");
}

TEST(Rendezvous, WithdrawingLeavesASharedFolderAndOtherJobsAlone) {
  const TemporaryFolder root;
  const RendezvousFolder folder{root.path(), false};
  publish_address(folder, "mine", {"127.0.0.1:1", ""});
  publish_address(folder, "other", {"127.0.0.1:2", ""});
  withdraw_address(folder, "mine");
  EXPECT_FALSE(read_address(folder, "mine"));
  EXPECT_EQ(read_address(folder, "other")->address, "127.0.0.1:2");
}

}  // namespace
}  // namespace headroom::cli
