// The services that a run sends its progress to, as its flags and its
// environment name them. The functions only read: no service is contacted here.
//
// MLflow's credentials come only from the environment: MLFLOW_TRACKING_TOKEN,
// or MLFLOW_TRACKING_USERNAME and _PASSWORD.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace headroom::notify {

struct WebAddress {
  bool is_encrypted = false;
  std::string host;
  int port = 0;
  std::string path;  // path and query, unchanged; may be ""

  // Scheme, host and port, without the path, which may be a secret.
  std::string shown() const;
  // The host as an address shows it: in brackets if it is an IPv6 address.
  std::string url_host() const;
  bool is_loopback() const;
};

// Throws Error (exit 2) for an invalid address. The refusal names `flag` but
// does not show the text, which may contain a password.
WebAddress parse_web_address(const std::string& flag, const std::string& text);

// The address of --mlflow without slashes at its end. Throws Error (exit 2) for
// an invalid address, or unencrypted credentials.
WebAddress parse_mlflow_address(const std::string& text);

// The text of mlflow.py.
const char* mlflow_script();

// Kubeflow Trainer 2 shows a run's progress in `kubectl get trainjob`. Its
// control plane (feature gate TrainJobStatus, alpha) gives every pod an
// address, the certificate of an authority, and a token:
//
//   KUBEFLOW_TRAINER_SERVER_URL       where to POST
//   KUBEFLOW_TRAINER_SERVER_CA_CERT   a file
//   KUBEFLOW_TRAINER_SERVER_TOKEN     a file that is replaced from time to
//                                     time, so it is read for each request
struct TrainJobServer {
  WebAddress address;
  std::filesystem::path authority, token;
};

// Returns nullopt outside a TrainJob. Throws Error (exit 2) if a variable is
// missing, or if the address is neither https:// nor loopback.
std::optional<TrainJobServer> trainjob_server();

}  // namespace headroom::notify
