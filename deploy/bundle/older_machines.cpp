// What the archives inside a portable program (headroom_portable) ask for and
// an older or smaller machine lacks: a function of glibc 2.36, OpenGL, LAPACK.
// Hidden, so that LibTorch goes on with its own.
#include <sys/random.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#pragma GCC visibility push(hidden)
extern "C" {

// Expat's seed against chosen hash values; glibc 2.36 has a function of its
// own.
void arc4random_buf(void* bytes, size_t size) noexcept {
  if (getrandom(bytes, size, 0) != static_cast<ssize_t>(size)) std::abort();
}

// OpenCV then says itself that there is no OpenGL.
void (*glXGetProcAddressARB(const unsigned char*))() { return nullptr; }

// OpenCV solves with its own code, and asks LAPACK and BLAS from 25 rows on:
// ours are 3 x 3.
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
