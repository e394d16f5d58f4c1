// The two sides of a fork: the parent as it was at one moment, and the children on their way. Private to the
// engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_impl.h"

namespace drupe {

/// What children are made from: the parent's files as they were at one moment. Of a parent that runs, the
/// shim saves while this object waits in steps; it is destroyed only after the shim's last word, because the
/// files of the save are the shim's until then.
class EngineImpl::ForkSource {
 public:
  explicit ForkSource(EngineImpl& engine) : engine_(engine) {}
  ForkSource(const ForkSource&) = delete;
  ForkSource& operator=(const ForkSource&) = delete;
  ~ForkSource();

  /// Takes hold of a paused parent, or asks the shim of one that runs for a save.
  Status begin(const std::string& id);
  /// False: paused, and all the waiting below returns at once.
  [[nodiscard]] bool runs() const { return client_ != nullptr; }
  /// Until the files are complete. Precondition of reading saved() and disk_chain(), and parent() is then
  /// what children inherit.
  Status await_saved();
  /// Until the saved machine cannot run any more: before this, the fork may fail and the parent go on in it.
  Status await_moved();
  /// Until the shim has done everything; notes how long that took.
  Status finish(Timings& timings);

  [[nodiscard]] int dir() const { return dir_.get(); }
  [[nodiscard]] const SandboxRecord& parent() const { return parent_; }
  [[nodiscard]] const SavedState& saved() const { return saved_; }
  [[nodiscard]] const std::vector<std::string>& disk_chain() const { return disk_chain_; }

 private:
  using Answer = std::optional<Result<std::string>>;
  struct Answers {
    Answer saved, moved, done;
  };
  Status ask(const std::string& id);
  Status await(Answer Answers::* answer);

  EngineImpl& engine_;
  UniqueFd dir_;
  UniqueFd lock_;  ///< Held while a paused parent's files are linked; else invalid.
  SandboxRecord parent_;
  SavedState saved_;
  std::vector<std::string> disk_chain_;
  bool own_files_ = false;  ///< The saved files exist only for this fork.
  std::unique_ptr<ShimClient> client_;
  std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();  ///< The requests may outlive this object.
  Deadline limit_;
};

struct EngineImpl::ForkPlan {
  std::string parent;
  std::uint32_t count = 1;
  const std::vector<std::string>& names;
  const ForkOptions& options;
  std::optional<NetworkRecord> network;  ///< Instead of the parent's.
  bool vanished = false;                 ///< Files of the parent were gone when they were to be linked.
};

/// The children of one fork. Those that were not released when it is destroyed are removed.
class EngineImpl::ForkChildren {
 public:
  ForkChildren(EngineImpl& engine, ForkPlan& plan) : engine_(engine), plan_(plan), children_(plan.count) {}
  ForkChildren(const ForkChildren&) = delete;
  ForkChildren& operator=(const ForkChildren&) = delete;
  ~ForkChildren();

  /// Starts the processes of the first children, as many as there are processors, while the parent still
  /// runs. One that cannot be prepared is made like the others.
  void prepare(const ForkSource& source);
  /// Gives those their place and lets them load what was saved.
  Status begin_prepared(const ForkSource& source);
  /// Gives every other child its directory, its name and its links.
  Status place(const ForkSource& source);
  /// User work of children may run from here on; run() starts those that have not been begun, as many at once
  /// as there are start slots, and waits for all.
  void let_run();
  void run();
  /// Those that run. An error when none does.
  Result<std::vector<SandboxInfo>> release();

 private:
  struct Child {
    Held held;
    Home::Scratch scratch;  ///< Until it is placed.
    UniqueFd pipe;          ///< To a prepared shim.
    std::optional<StartingShim> shim;
    StartSlot slot;
    Status status;
    bool placed = false, begun = false, over = false;
  };

  [[nodiscard]] SandboxRecord record_of(const SandboxRecord& parent, const std::string& id,
                                        std::size_t index) const;
  Status prepare_one(Child& child, const ForkSource& source, std::size_t index);
  Status place_one(const ForkSource& source, std::size_t index);
  Status put(Child& child, const ForkSource& source, std::size_t index);
  Status link_all(Child& child, const ForkSource& source, const SandboxRecord& record);
  Status join();
  bool start_next();
  Status start(Child& child);
  Status spawn(Child& child, int pipe);
  void tell(const Child& child, char byte);
  bool landed(Child& child);
  void drop(Child& child);

  EngineImpl& engine_;
  ForkPlan& plan_;
  std::vector<Child> children_;
  std::size_t next_ = 0;
  bool may_run_ = false, released_ = false;
};

}  // namespace drupe
