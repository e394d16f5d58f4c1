// A machine without a machine: socket pairs with a scripted agent on the other end, in the same event loop.
// Tests make it misbehave in every way a guest or a hypervisor can.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hypervisor/hypervisor.h"
#include "protocol/messages.h"
#include "protocol/port.h"

namespace drupe::testing {

/// The guest's side of both ports. Answers what a good agent answers unless told otherwise.
class FakeAgent {
 public:
  FakeAgent(EventLoop& loop, UniqueFd control, UniqueFd bulk);

  struct Request {
    std::uint16_t kind = 0;
    std::string body;
  };
  std::vector<Request> requests;                   ///< All that came, in order.
  std::map<std::uint32_t, OpenRequest> opened;     ///< All streams ever opened.
  std::map<std::uint32_t, std::string> received;   ///< Stdin of streams.
  std::map<std::uint32_t, std::string> resets;     ///< Reasons.
  std::map<std::uint32_t, std::uint64_t> granted;  ///< Credit of stdout, beyond the initial one.
  std::vector<Frame> others;                       ///< kEof, kSignal, kResize; payloads gone.
  std::vector<std::uint64_t> epochs;
  bool silent = false;  ///< Echoes no marker and answers nothing.
  bool freeze_fails = false;
  std::function<void(std::uint32_t)> on_open;  ///< A stream is complete; default: kOpened.
  std::function<void()> on_shutdown;
  std::function<void(RequestKind)> on_request;  ///< Before it is answered.

  void output(std::uint32_t stream, std::string_view bytes, Channel channel = Channel::kStdout);
  void credit(std::uint32_t stream, std::uint32_t bytes);
  void exit(std::uint32_t stream, int code);
  void event(EventKind kind, std::string_view text);
  [[nodiscard]] std::size_t count(RequestKind kind) const;
  Port& control() { return *control_; }
  Port& bulk() { return *bulk_; }

 private:
  Status on_control(const Frame& frame);
  Status on_bulk(const Frame& frame);
  void answer(std::uint32_t id, RequestKind kind, ByteView body);

  EventLoop& loop_;
  std::unique_ptr<Port> control_, bulk_;
  std::map<std::uint32_t, OpenAssembler> opening_;
};

class FakeMachine;

/// Shared between the test and the machines: what they did, and how they shall fail.
struct FakeWorld {
  FakeMachine* machine = nullptr;  ///< The newest whose guest runs.
  FakeAgent* agent = nullptr;      ///< Its agent; null after its end.
  std::vector<FakeMachine*> running;
  int launches = 0;
  int silent_launches = 0;         ///< So many first launches bring an agent that never answers.
  std::vector<std::string> calls;  ///< "stop", "save", "hold", "prepare", "restore", "cont", "kill",
                                   ///< "flatten", "drop", "grow", "link up", "link down".
  std::string fail_call;           ///< This call fails.
  std::function<void()> on_restore;
  bool silent_restore = false;  ///< The agent does not answer in a machine that was prepared.
  std::function<void(Status)> flattened;
  std::function<void()> on_drop;  ///< While the nodes are being dropped.
  std::size_t disk_nodes = 0;
  bool restored = false;
};

class FakeMachine final : public Machine {
 public:
  FakeMachine(EventLoop& loop, FakeWorld& world, bool prepared);
  ~FakeMachine() override;
  [[nodiscard]] int control_fd() const override { return control_.get(); }
  [[nodiscard]] int bulk_fd() const override { return bulk_.get(); }
  [[nodiscard]] std::string console_tail() const override { return "last words\n"; }
  [[nodiscard]] int pid() const override;
  void on_end(std::function<void(const MachineEnd&)> callback) override { on_end_ = std::move(callback); }
  Status stop(Deadline) override { return call("stop"); }
  Status cont(Deadline) override { return call("cont"); }
  Status hold(Deadline) override { return call("hold"); }
  Result<SavedMemory> save(UniqueFd device_state, int memory_file, SaveForm form, Deadline deadline) override;
  Status restore(SavedMachine saved, Deadline deadline) override;
  void flatten_disk(std::function<void(Status)> done) override;
  Status drop_flattened(Deadline deadline) override;
  Status grow_disk(std::uint64_t, Deadline) override { return call("grow"); }
  Status set_link(bool up, Deadline) override { return call(up ? "link up" : "link down"); }
  void kill() override;

  /// The process ends: ports close, then the end is told.
  void end(int wait_status, bool guest_reset, const std::string& reason);

 private:
  Status call(const std::string& name);
  void enter_world();

  EventLoop& loop_;
  FakeWorld& world_;
  UniqueFd control_, bulk_;
  std::unique_ptr<FakeAgent> agent_;
  std::function<void(const MachineEnd&)> on_end_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  bool ended_ = false;
};

class FakeHypervisor final : public Hypervisor {
 public:
  explicit FakeHypervisor(FakeWorld& world) : world_(world) {
    info_.name = "fake";
    info_.state_key = "fake-key";
  }
  [[nodiscard]] const HypervisorInfo& info() const override { return info_; }
  Result<std::unique_ptr<Machine>> launch(EventLoop& loop, LaunchSpec spec, Deadline deadline) override;
  Result<std::unique_ptr<Machine>> prepare(EventLoop& loop, LaunchSpec spec, Deadline deadline) override;

 private:
  FakeWorld& world_;
  HypervisorInfo info_;
};

}  // namespace drupe::testing
