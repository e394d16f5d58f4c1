// A client's stream that goes to the guest as it is: credits travel from end to end, so the shim holds at
// most what the receiver has granted.
#pragma once

#include <cstdint>

#include "shim/client_hub.h"
#include "shim/guest_link.h"

namespace drupe {

class PassThrough final : public ClientSideStream, public GuestStream {
 public:
  /// `link` outlives the stream.
  static Result<std::unique_ptr<ClientSideStream>> open(GuestLink& link, const ClientStreamRef& client,
                                                        const OpenRequest& request);
  PassThrough(GuestLink& link, const ClientStreamRef& client) : link_(link), client_(client) {}
  // A guest that does not stand still, or the hypervisor, may send more for the stream at any time.
  ~PassThrough() override { link_.forget(id_); }
  PassThrough(const PassThrough&) = delete;
  PassThrough& operator=(const PassThrough&) = delete;

  Status on_client_frame(const Frame& frame) override;
  void on_client_gone(std::string_view reason) override;
  void on_guest_frame(const Frame& frame) override;

 private:
  GuestLink& link_;
  ClientStreamRef client_;
  std::uint32_t id_ = 0;
};

/// kSignal and kResize of clients, checked; other frames are an error.
Status forward_control_frame(GuestLink& link, std::uint32_t stream, const Frame& frame);

}  // namespace drupe
