// heap: freed memory of tensors stays with the process.
//
// A training step allocates and frees the same hundreds of megabytes over and
// over. By default the C library returns them to the system, which hands them
// out again page by page, zeroed: a tenth to a fifth of a small model's step.
//
// keep_freed_memory is called once, before any other thread starts.
#pragma once

namespace headroom::kernels {

// Keeps freed memory and asks for large pages from now on. Affects every
// allocation of the process; its largest use of memory does not grow, but it is
// held until the end. False where the C library has no such settings: nothing
// is changed then.
bool keep_freed_memory();

// Gives freed memory back to the system after all, where it has such a call:
// when memory has run out.
void release_freed_memory();

}  // namespace headroom::kernels
