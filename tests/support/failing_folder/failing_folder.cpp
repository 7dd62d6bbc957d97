// A library for LD_PRELOAD. While the file $HEADROOM_FAILING_WHILE exists,
// every call that names a path in the folder $HEADROOM_FAILING_FOLDER fails
// with ESTALE, as on a network file system whose server is unreachable.
// Descriptors that are already open continue to work.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool fails(const char* path) {
  static const char* const folder = std::getenv("HEADROOM_FAILING_FOLDER");
  static const char* const trigger = std::getenv("HEADROOM_FAILING_WHILE");
  if (folder == nullptr || trigger == nullptr || path == nullptr ||
      std::strncmp(path, folder, std::strlen(folder)) != 0) {
    return false;
  }
  const int before = errno;
  if (::syscall(SYS_access, trigger, F_OK) != 0) {
    errno = before;
    return false;
  }
  errno = ESTALE;
  return true;
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

mode_t mode_in(int flags, va_list list) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

}  // namespace

// The replaced functions of the C library, grouped by the type of their result.
#define OPEN(name)                                                    \
  int name(const char* path, int flags, ...) {                        \
    va_list list;                                                     \
    va_start(list, flags);                                            \
    const mode_t mode = mode_in(flags, list);                         \
    va_end(list);                                                     \
    static const auto call = real<int(const char*, int, ...)>(#name); \
    return fails(path) ? -1 : call(path, flags, mode);                \
  }
#define OPENAT(name)                                                       \
  int name(int at, const char* path, int flags, ...) {                     \
    va_list list;                                                          \
    va_start(list, flags);                                                 \
    const mode_t mode = mode_in(flags, list);                              \
    va_end(list);                                                          \
    static const auto call = real<int(int, const char*, int, ...)>(#name); \
    return fails(path) ? -1 : call(at, path, flags, mode);                 \
  }
#define ONE(type, name, failure, Rest, rest)              \
  type name(const char* path Rest) {                      \
    static const auto call = real<decltype(name)>(#name); \
    return fails(path) ? failure : call(path rest);       \
  }
#define COMMA ,

extern "C" {

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
ONE(FILE*, fopen, nullptr, COMMA const char* mode, COMMA mode)
ONE(FILE*, fopen64, nullptr, COMMA const char* mode, COMMA mode)
ONE(DIR*, opendir, nullptr, , )
ONE(int, stat, -1, COMMA struct stat* status, COMMA status)
ONE(int, stat64, -1, COMMA struct stat64* status, COMMA status)
ONE(int, lstat, -1, COMMA struct stat* status, COMMA status)
ONE(int, lstat64, -1, COMMA struct stat64* status, COMMA status)
ONE(int, statvfs, -1, COMMA struct statvfs* status, COMMA status)
ONE(int, mkdir, -1, COMMA mode_t mode, COMMA mode)
ONE(int, rmdir, -1, , )
ONE(int, unlink, -1, , )
ONE(int, remove, -1, , )
ONE(int, truncate, -1, COMMA off_t size, COMMA size)
ONE(int, rename, -1, COMMA const char* to, COMMA to)

}  // extern "C"
