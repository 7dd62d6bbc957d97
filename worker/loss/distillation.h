// distillation: what a teacher's head asks of a student's, on one level
// (after Mehta & Ozturk 2018, "Object detection at 200 frames per second":
// class and box terms weigh as much as the teacher sees an object).
//
// With s = sigmoid(student), t = sigmoid(teacher), o = t's objectness, a cell
// adds
//
//   obj   KL(t_obj, s_obj)
//   box   o * sum over x, y, w, h of (s - t)^2
//   cls   o * sum over classes of KL(t, s)
//
// KL is cross-entropy less the teacher's own entropy: all of it is 0 where the
// student says what the teacher says. Cells with o < 1/1000 teach objectness
// alone. Labels play no part, so sums over ranks and micro-batches add up; what
// they are divided by are the counts of the global batch that the loss of the
// labels is divided by.
// The number of threads changes no bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace headroom::loss {

// The teacher's head and what each sum is multiplied by; undefined: no teacher.
struct Distillation {
  at::Tensor teacher;  // has the student's sizes and type, any strides
  double box = 0, obj = 0, cls = 0;
};

struct DistilledLevel {
  std::array<double, 3> items = {};  // box, obj, cls
  // The gradient of their sum by the student's head; dense, in its order of
  // strides.
  at::Tensor gradient;
};

// head [n, anchors, H, W, 5 + classes] on the CPU, float32 or float64.
DistilledLevel distil_level(const at::Tensor& head,
                            const Distillation& distillation);

}  // namespace headroom::loss
