// distillation: the loss terms between a teacher's head and a student's head on
// one level (after Mehta & Ozturk 2018, "Object detection at 200 frames per
// second": class and box terms are weighted by the teacher's objectness).
//
// With s = sigmoid(student), t = sigmoid(teacher), o = the teacher's
// objectness, each cell adds
//
//   obj   KL(t_obj, s_obj)
//   box   o * sum over x, y, w, h of (s - t)^2
//   cls   o * sum over classes of KL(t, s)
//
// KL is the cross-entropy minus the teacher's own entropy, so all terms are 0
// if the student's output equals the teacher's. Cells with o < 1/1000
// contribute to objectness only. Labels are not used, so sums over ranks and
// micro-batches add up; they are divided by the same global counts as the loss
// of the labels.
//
// The number of threads does not change the result.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace headroom::loss {

// The output of the teacher's head (an undefined tensor if there is no teacher)
// and the factor of each term of the distillation loss.
struct Distillation {
  at::Tensor teacher;  // has the student's sizes and type, any strides
  double box = 0, obj = 0, cls = 0;
};

struct DistilledLevel {
  std::array<double, 3> items = {};  // box, obj, cls
  // Gradient of the sum of the items with respect to the student's head; dense,
  // in the head's order of strides.
  at::Tensor gradient;
};

// REQUIRES: head [n, anchors, H, W, 5 + classes], CPU, float32 or float64.
DistilledLevel distil_level(const at::Tensor& head,
                            const Distillation& distillation);

}  // namespace headroom::loss
