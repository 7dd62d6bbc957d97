// heap: keeps freed memory of tensors in the process.
//
// A training step allocates and frees the same hundreds of megabytes over and
// over. By default the C library returns them to the system, which provides
// them again page by page, zeroed; this takes a tenth to a fifth of a small
// model's step.
//
// The price: the process also keeps the unused gaps between tensors. With
// recomputed layers the gaps had up to twice the tensors' bytes.
//
// Call one of the first two functions once, before any other thread starts.
#pragma once

namespace headroom::kernels {

// From now on keeps freed memory and asks for large pages. It affects every
// allocation of the process. The peak of memory does not grow, but memory is
// held until the process ends. Returns false, without any change, if the C
// library has no such settings.
bool keep_freed_memory();

// From now on returns freed blocks of 1 MiB and more to the system at once: for
// a process that was killed because it held too much. A step takes up to twice
// the time. Returns false if the C library has no such setting.
bool return_freed_memory();

// Returns freed memory to the system if possible. Call it when memory is short.
void release_freed_memory();

}  // namespace headroom::kernels
