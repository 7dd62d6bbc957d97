// Functions that the static libraries inside a portable program
// (headroom_portable) need and that older or smaller machines lack: a function
// of glibc 2.36, and functions of OpenGL and LAPACK. Their symbols are hidden,
// so that LibTorch keeps using its own.
#include <sys/random.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#pragma GCC visibility push(hidden)
extern "C" {

// Seeds Expat against hash collisions; glibc before version 2.36 lacks this
// function.
void arc4random_buf(void* bytes, size_t size) noexcept {
  if (getrandom(bytes, size, 0) != static_cast<ssize_t>(size)) std::abort();
}

// Returns nullptr, so that OpenCV itself reports that OpenGL is missing.
void (*glXGetProcAddressARB(const unsigned char*))() { return nullptr; }

// OpenCV calls LAPACK and BLAS only for matrices of 25 rows or more; our
// matrices are 3 x 3.
#define HEADROOM_WITHOUT(name)                                  \
  void name() {                                                 \
    std::fputs("[images] OpenCV called " #name                  \
               ", but this program was built without LAPACK\n", \
               stderr);                                         \
    std::abort();                                               \
  }
HEADROOM_WITHOUT(cblas_sgemm)
HEADROOM_WITHOUT(cblas_dgemm)
HEADROOM_WITHOUT(cblas_cgemm)
HEADROOM_WITHOUT(cblas_zgemm)
HEADROOM_WITHOUT(sgels_)
HEADROOM_WITHOUT(dgels_)
HEADROOM_WITHOUT(sgeqrf_)
HEADROOM_WITHOUT(dgeqrf_)
HEADROOM_WITHOUT(sgesdd_)
HEADROOM_WITHOUT(dgesdd_)
HEADROOM_WITHOUT(sgesv_)
HEADROOM_WITHOUT(dgesv_)
HEADROOM_WITHOUT(sgetrf_)
HEADROOM_WITHOUT(dgetrf_)
HEADROOM_WITHOUT(spotrf_)
HEADROOM_WITHOUT(dpotrf_)
HEADROOM_WITHOUT(sposv_)
HEADROOM_WITHOUT(dposv_)

}  // extern "C"
#pragma GCC visibility pop
