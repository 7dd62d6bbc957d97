// Certificates for a small cluster: a CA of its own, one certificate for the
// coordinator and one for agents, workers and people, and a join token.
//
//   ca.pem                  the authority that all sides trust: on every node
//   server.pem, server.key  the coordinator's, for the names given
//   client.pem, client.key  everybody else's
//   token                   the join token; ca.key signs further certificates
//                           and belongs on no node
//
// Keys are P-256, valid for ten years (CA) and two (others); files with secrets
// have mode 0600.
//
// Errors: Error (exit 2) if the folder holds certificates already, a name is
// none, or a file cannot be written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::coordinator {

// `names`: host names and addresses under which the coordinator is reached;
// localhost, 127.0.0.1 and ::1 are added. REQUIRES: a folder that is not there
// yet, or has none of the files above.
void make_certificates(const std::filesystem::path& folder,
                       const std::vector<std::string>& names);

}  // namespace headroom::coordinator
