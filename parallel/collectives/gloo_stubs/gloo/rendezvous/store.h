// See gloo/context.h. Gloo's own Store has more virtual functions, so only
// pointers to one may be handled here and none may be constructed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo::rendezvous {

class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string&, const std::vector<char>&) = 0;
  virtual std::vector<char> get(const std::string&) = 0;
  virtual void wait(const std::vector<std::string>&) = 0;
  virtual void wait(const std::vector<std::string>&,
                    const std::chrono::milliseconds&) = 0;
};

}  // namespace gloo::rendezvous
