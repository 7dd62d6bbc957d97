// The environment of this process, and the one for programs of the user.
//
// Threads: any, as long as the environment does not change.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace headroom {

using Environment = std::map<std::string, std::string>;

Environment process_environment();

// For a program that is not part of Headroom, such as ffmpeg: the environment
// of this process as it was before a bundle's launcher changed it
// (deploy/bundle/launcher.sh). Our libraries may be older or newer than those
// that such a program was built for.
Environment users_environment();

// "NAME=VALUE".
std::vector<std::string> assignments(const Environment& environment);

// The form in which exec() takes words or assignments. The pointers are valid
// as long as `texts` does not change.
std::vector<char*> pointers_to(std::vector<std::string>& texts);

}  // namespace headroom
