// Certificates for a small cluster: a new CA, one certificate for the
// coordinator and one for agents, workers and users, and a join token.
//
//   ca.pem                  the authority that all sides trust: on every node
//   server.pem, server.key  for the coordinator, with the given names
//   client.pem, client.key  for agents, workers and users
//   token                   the join token
//   ca.key                  signs further certificates; belongs on no node
//
// Keys are P-256. The CA certificate is valid for ten years, the other
// certificates for two. Files with secrets have mode 0600.
//
// Errors: Error (exit 2) if the folder already holds certificates, a name is
// not a host name or address, or a file cannot be written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::coordinator {

// `names`: host names and addresses of the coordinator; localhost, 127.0.0.1
// and ::1 are added. REQUIRES: the folder does not exist or has none of the
// files above.
void make_certificates(const std::filesystem::path& folder,
                       const std::vector<std::string>& names);

}  // namespace headroom::coordinator
