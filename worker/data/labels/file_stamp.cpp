#include "worker/data/labels/file_stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "worker/data/codecs/image.h"
#include "worker/data/packs/packed_file.h"

namespace headroom::labels {

bool keeps_status_times(int64_t filesystem_type) {
  constexpr std::array<int64_t, 16> kLocal = {
      0xEF53,      // ext2, ext3, ext4
      0x58465342,  // XFS
      0x9123683E,  // Btrfs
      0x2FC12FC1,  // ZFS
      0xF2F52010,  // F2FS
      0xCA451A4E,  // bcachefs
      0x3153464A,  // JFS
      0x01021994,  // tmpfs
      0x858458F6,  // ramfs
      0x794C7630,  // overlayfs; its lower layers must not change
      // Network file systems whose server sets the time.
      0x6969,      // NFS
      0x0BD00BD0,  // Lustre
      0x00C36400,  // Ceph
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0x013111A8,  // IBRIX
  };
  return std::ranges::find(kLocal, filesystem_type) != kLocal.end();
}

namespace {

int64_t nanoseconds(const auto& time) {
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

// May be called from any thread. The answer is cached per device, because the
// images of a data set are on few file systems.
bool device_keeps_status_times(const std::string& path, uint64_t device) {
  static std::mutex mutex;
  static std::map<uint64_t, bool> known;
  {
    const std::lock_guard lock(mutex);
    const auto found = known.find(device);
    if (found != known.end()) return found->second;
  }
  struct statfs system {};
  if (packs::with_patience([&] { return ::statfs(path.c_str(), &system); }) !=
      0) {
    return false;  // not cached, so the next file tries again
  }
  const bool keeps = keeps_status_times(system.f_type);
  const std::lock_guard lock(mutex);
  known[device] = keeps;
  return keeps;
}

}  // namespace

std::optional<FileStamp> stamp_of(const std::string& file) {
  struct statx status {};
  std::string path;
  const auto look = [&](const std::string& at) {
    path = at;
    return packs::with_patience([&] {
             return ::statx(AT_FDCWD, at.c_str(), AT_STATX_FORCE_SYNC,
                            STATX_BASIC_STATS, &status);
           }) == 0;
  };
  if (!look(file) &&
      !(codecs::names_page(file) && look(codecs::image_page(file).file))) {
    return std::nullopt;
  }
  const uint64_t device =
      uint64_t{status.stx_dev_major} << 32 | status.stx_dev_minor;
  return FileStamp{status.stx_size, nanoseconds(status.stx_mtime),
                   device_keeps_status_times(path, device)
                       ? nanoseconds(status.stx_ctime)
                       : 0,
                   status.stx_ino};
}

}  // namespace headroom::labels
