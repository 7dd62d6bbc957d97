// Server reflection: gRPC's own service that tells callers which calls there
// are, for grpcurl and the like. Only where it is asked for: it says the same
// to everybody whom TLS lets in, with or without the join token.
//
// Threads: as ServerBuilder.
#pragma once

#include <grpcpp/server_builder.h>

namespace headroom::coordinator {

// REQUIRED before BuildAndStart, wanted or not: gRPC's library adds the service
// to every server of a process that it is linked to.
void offer_reflection(grpc::ServerBuilder& builder, bool wanted);

}  // namespace headroom::coordinator
