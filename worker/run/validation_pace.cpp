#include "worker/run/validation_pace.h"

namespace headroom::run {
namespace {

double seconds_between(ValidationPace::Time begin, ValidationPace::Time end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

bool ValidationPace::is_due(Time now) const {
  if (share_ == 0 || seconds_ == 0) return true;
  return share_ * (seconds_ + trained_seconds(now)) >= seconds_;
}

void ValidationPace::note(Time begin, Time end) {
  seconds_ = seconds_between(begin, end);
  end_ = end;
}

double ValidationPace::trained_seconds(Time now) const {
  return seconds_between(end_, now);
}

}  // namespace headroom::run
