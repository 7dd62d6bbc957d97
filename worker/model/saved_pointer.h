// A typed pointer that an autograd function keeps for its backward. It does not
// own its target, which must exist until backward is done; this holds for
// everything that a step passes to its layers.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

namespace headroom::model {

template <typename T>
struct SavedPointer : torch::CustomClassHolder {
  explicit SavedPointer(T* to) : pointer(to) {}
  T* pointer;
};

template <typename T>
c10::IValue save_pointer(T* pointer) {
  return c10::IValue::make_capsule(
      c10::make_intrusive<SavedPointer<T>>(pointer));
}

// REQUIRES: `value` was made by save_pointer<T>.
template <typename T>
T* saved_pointer(const c10::IValue& value) {
  return c10::static_intrusive_pointer_cast<SavedPointer<T>>(value.toCapsule())
      ->pointer;
}

}  // namespace headroom::model
