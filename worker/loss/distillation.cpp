#include "worker/loss/distillation.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>

#include <cmath>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"
#include "worker/kernels/entropy.h"

namespace headroom::loss {
namespace {

constexpr double kSpeaks = 1e-3;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// KL divergence of two logits, and its derivative by the student's logit.
kernels::EntropyTerm divergence(double student, double teacher) {
  const double t = sigmoid(teacher);
  return {kernels::softplus(student) - kernels::softplus(teacher) -
              t * (student - teacher),
          sigmoid(student) - t};
}

template <typename T>
class Image {
 public:
  Image(const at::Tensor& head, const Distillation& distillation,
        const at::Tensor& gradient, int64_t image)
      : head_(head),
        rule_(distillation),
        student_(head.const_data_ptr<T>() + image * head.stride(0)),
        teacher_(rule_.teacher.const_data_ptr<T>() +
                 image * rule_.teacher.stride(0)),
        gradient_(gradient.mutable_data_ptr<T>() + image * gradient.stride(0)),
        gradient_strides_(gradient.strides()) {}

  std::array<double, 3> run() {
    for (int64_t a = 0; a < head_.size(1); ++a)
      for (int64_t y = 0; y < head_.size(2); ++y)
        for (int64_t x = 0; x < head_.size(3); ++x) add_cell(a, y, x);
    return {box_ * rule_.box, obj_ * rule_.obj, cls_ * rule_.cls};
  }

 private:
  void add_cell(int64_t a, int64_t y, int64_t x) {
    const auto place = [&](at::IntArrayRef strides) {
      return a * strides[1] + y * strides[2] + x * strides[3];
    };
    const T* student = student_ + place(head_.strides());
    const T* teacher = teacher_ + place(rule_.teacher.strides());
    T* gradient = gradient_ + place(gradient_strides_);
    const int64_t step = head_.stride(4), its_step = rule_.teacher.stride(4);
    const auto own = [&](int64_t f) -> double { return student[f * step]; };
    const auto its = [&](int64_t f) -> double { return teacher[f * its_step]; };
    const auto set = [&](int64_t f, double value) {
      gradient[f * gradient_strides_[4]] = static_cast<T>(value);
    };

    const kernels::EntropyTerm obj =
        divergence(own(kObjectness), its(kObjectness));
    obj_ += obj.value;
    set(kObjectness, rule_.obj * obj.derivative);
    const double seen = sigmoid(its(kObjectness));
    const double weight = seen < kSpeaks ? 0 : seen;
    for (int64_t f = 0; f < kBoxFields; ++f) {
      if (weight == 0) {
        set(f, 0);
        continue;
      }
      const double s = sigmoid(own(f)), apart = s - sigmoid(its(f));
      box_ += weight * apart * apart;
      set(f, rule_.box * weight * 2 * apart * s * (1 - s));
    }
    const bool has_classes = head_.size(4) > kFirstClass + 1;
    for (int64_t f = kFirstClass; f < head_.size(4); ++f) {
      if (weight == 0 || !has_classes) {
        set(f, 0);
        continue;
      }
      const kernels::EntropyTerm cls = divergence(own(f), its(f));
      cls_ += weight * cls.value;
      set(f, rule_.cls * weight * cls.derivative);
    }
  }

  const at::Tensor& head_;
  const Distillation& rule_;
  const T* student_;
  const T* teacher_;
  T* gradient_;
  const at::IntArrayRef gradient_strides_;
  double box_ = 0, obj_ = 0, cls_ = 0;
};

}  // namespace

DistilledLevel distil_level(const at::Tensor& head,
                            const Distillation& distillation) {
  HEADROOM_CHECK(distillation.teacher.sizes() == head.sizes() &&
                     distillation.teacher.scalar_type() == head.scalar_type(),
                 "a teacher's head is of the student's sizes and type");
  DistilledLevel level;
  level.gradient = at::empty_strided(
      head.sizes(), at::infer_dense_strides(head.sizes(), head.strides()),
      head.options());
  std::vector<std::array<double, 3>> images(static_cast<size_t>(head.size(0)));
  AT_DISPATCH_FLOATING_TYPES(head.scalar_type(), "distil_level", [&] {
    at::parallel_for(0, head.size(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        images[static_cast<size_t>(i)] =
            Image<scalar_t>(head, distillation, level.gradient, i).run();
      }
    });
  });
  for (const auto& items : images)
    for (size_t i = 0; i < items.size(); ++i) level.items[i] += items[i];
  return level;
}

}  // namespace headroom::loss
