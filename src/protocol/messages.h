// The messages inside frames. Every struct has encode() and a decode() that takes hostile bytes.
// docs/protocol.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/frame.h"

namespace drupe {

/// Requests of the control port. Values below 0x100 go to the agent; from 0x100 on they are answered by the
/// shim (shim/messages.h). A client of the shim may use both, except those marked "shim only".
enum class RequestKind : std::uint16_t {
  kPing = 1,      ///< Body is echoed (at most 1 KiB).
  kHello = 2,     ///< Shim only. -> HelloReply.
  kSetUp = 3,     ///< Shim only. SetUpRequest: identity, clock, entropy; done on boot and on every restore,
                  ///< before any user work runs.
  kSync = 4,      ///< Flushes the guest's file systems and makes the guest ready to be saved for others; user
                  ///< work runs on.
  kFreeze = 5,    ///< Shim only. FreezeRequest. -> empty, when user work is frozen, its files are flushed and
                  ///< both ports are quiet.
  kThaw = 6,      ///< Shim only. Undoes kFreeze, after the markers.
  kGrowRoot = 7,  ///< Shim only. u64 bytes the device shall have (or nothing): waits for them, then grows the
                  ///< root. -> empty.
  kStats = 8,     ///< -> GuestStats.
  kProcesses = 9,    ///< -> ProcessList.
  kSignalExec = 10,  ///< SignalExecRequest. kNotFound when no such exec.
  kShutdown = 11,  ///< Shim only. ShutdownRequest: signal main, grace, kill all, sync, unmount. Replies, then
                   ///< powers off.
  kSetHost = 12,   ///< SetHostRequest: /etc/hosts, /etc/resolv.conf.
  kSetNetwork = 13,  ///< Shim only. SetNetworkRequest. -> empty, when the guest's network can be used.
  kFlush = 14,       ///< Shim only. Flushes the guest's file systems, no more; user work runs on.
};

enum class EventKind : std::uint16_t {
  kWorkEnded =
      1,  ///< The namespace's init is gone (guest root ended it); body: text, the reason. The sandbox ends.
};

/// A reply is u8 1 and an error, or u8 0 and the body.
[[nodiscard]] std::string encode_reply(std::string_view body);
[[nodiscard]] std::string encode_error_reply(const Error& error);
/// The body, or the error that the other side reported.
Result<std::string> decode_reply(ByteView payload);
[[nodiscard]] std::string encode_request(std::uint16_t kind, std::string_view body);
struct RequestView {
  std::uint16_t kind = 0;
  ByteView body;
};
Result<RequestView> decode_request(ByteView payload);

struct HelloReply {
  std::uint32_t protocol_version = kProtocolVersion;
  std::string agent_version;
  std::string kernel_release;
  std::string boot_id;
  [[nodiscard]] std::string encode() const;
  static Result<HelloReply> decode(ByteView bytes);
};

/// Repairs a fresh boot or a restored machine. After it the guest's clocks, randomness and names are its own.
struct SetUpRequest {
  std::uint64_t realtime_ns = 0;  ///< CLOCK_REALTIME to step to.
  std::string entropy;            ///< 32..256 bytes, credited to the kernel's pool, then reseeded.
  std::string hostname;           ///< 1..64 bytes; also in /etc/hostname and /etc/hosts.
  std::string machine_id;         ///< 32 hex digits.
  std::string mac;                ///< 6 bytes, or empty: keep.
  bool new_identity = false;      ///< Fork or first use: replace boot id and machine id. A resume keeps them.
  std::vector<std::string> default_env;  ///< "KEY=value" of the image; used by every exec unless overridden.
  std::string default_user;              ///< Image's User; empty: root.
  std::string default_cwd;               ///< Image's WorkingDir; empty: /.
  [[nodiscard]] std::string encode() const;
  static Result<SetUpRequest> decode(ByteView bytes);
};

struct FreezeRequest {
  std::uint32_t barrier = 0;  ///< The host's kBarrier on the bulk port; the guest answers with the same one.
  std::uint32_t deadline_ms =
      0;  ///< For freezing; when it passes, everything is thawed and the reply is kTimeout.
  [[nodiscard]] std::string encode() const;
  static Result<FreezeRequest> decode(ByteView bytes);
};

struct GuestStats {
  std::uint64_t memory_total = 0, memory_available = 0;  ///< Bytes.
  std::uint64_t memory_user = 0;                         ///< Charged to user work.
  std::uint64_t cpu_user_ns = 0;                         ///< CPU time of user work.
  std::uint64_t disk_total = 0, disk_free = 0;           ///< Root file system, bytes.
  std::uint32_t processes = 0;
  std::uint64_t oom_kills = 0;
  std::uint64_t uptime_ns = 0;
  std::uint64_t realtime_ns = 0;
  [[nodiscard]] std::string encode() const;
  static Result<GuestStats> decode(ByteView bytes);
};

struct GuestProcess {
  std::int32_t pid = 0, parent = 0;  ///< As user work sees them.
  std::uint32_t uid = 0;
  char state = '?';
  std::uint64_t cpu_ns = 0, rss_bytes = 0;
  std::string command;  ///< At most 4 KiB of argv, NUL replaced by spaces; bytes.
  std::string exec_id;  ///< The exec it descends from, when known.
};
struct ProcessList {
  std::vector<GuestProcess> processes;
  bool truncated = false;  ///< More than fit into one frame.
  [[nodiscard]] std::string encode() const;
  static Result<ProcessList> decode(ByteView bytes);
};

struct SignalExecRequest {
  std::string exec_id;
  std::int32_t signal = 0;
  bool tree = false;
  [[nodiscard]] std::string encode() const;
  static Result<SignalExecRequest> decode(ByteView bytes);
};

struct ShutdownRequest {
  std::int32_t signal = 15;         ///< To the leader of exec id "main", if it runs.
  std::uint32_t grace_ms = 10'000;  ///< Then everything is killed.
  [[nodiscard]] std::string encode() const;
  static Result<ShutdownRequest> decode(ByteView bytes);
};

struct SetHostRequest {
  std::string hosts, resolv_conf;  ///< Whole file contents; empty: leave alone.
  [[nodiscard]] std::string encode() const;
  static Result<SetHostRequest> decode(ByteView bytes);
};

/// The guest's network card. Never sent to a guest that has no network, so that it runs none of this.
struct SetNetworkRequest {
  bool up = false;             ///< false: the card is taken down, and nothing else below is looked at.
  std::string mac;             ///< 6 bytes, or empty: keep.
  std::uint32_t mtu = 1500;    ///< 576..65535.
  std::string v4, gateway_v4;  ///< Numeric.
  std::uint8_t v4_prefix = 0;  ///< 1..32.
  std::string v6, gateway_v6;  ///< Empty: no IPv6 on the card, not even link-local.
  std::uint8_t v6_prefix = 0;  ///< 1..128.
  /// Whole content of /etc/resolv.conf; a link in its place is replaced. Empty: it is left alone.
  std::string resolv_conf;
  [[nodiscard]] std::string encode() const;
  static Result<SetNetworkRequest> decode(ByteView bytes);
};

// --- streams
// -----------------------------------------------------------------------------------------------------------

enum class OpenKind : std::uint8_t {
  kExec = 1,
  kAttach = 2,  ///< To a running exec by id: its output so far (a bounded ring of 64 KiB a channel) and from
                ///< now on.
  kReadFile = 3,   ///< path, offset, length (0: to the end). stdout: bytes. result: StatResult.
  kWriteFile = 4,  ///< path, offset, mode, uid, gid, flags. stdin: bytes; written atomically (temp + rename)
                   ///< unless append or ranged.
  kTarIn = 5,      ///< path: existing directory. stdin: tar. Modes, times, links, sparse kept.
  kTarOut =
      6,      ///< path. stdout: tar (PAX), entries named relative to `path`'s parent (last component first).
  kWalk = 7,  ///< path. stdout: WalkEntry records; options in `walk`.
  kStat = 8,  ///< result: StatResult of path (no_follow flag).
  kMkdir = 9,
  kRemove = 10,
  kRename = 11,
  kChmod = 12,
  kChown = 13,
  kSymlink = 14,
  kList = 15,    ///< path. stdout: kEntry records of the directory's entries, unsorted.
  kWatch = 16,   ///< path. stdout: WatchEvent records until reset.
  kTunnel = 17,  ///< TCP to 127.0.0.1:port (or [::1]) inside the guest. stdin/stdout are the two directions.
  kTrust = 18,  ///< stdin: TrustBundle (protocol/trust.h), which the guest's clients trust when it has ended.
  kSelf = 19,   ///< stdout: "pause\n" or "delete\n" for each wish of the guest's work, until its stdin ends.
};

struct ResourceLimit {
  std::int32_t resource = 0;  ///< RLIMIT_* of Linux x86-64.
  std::uint64_t soft = 0, hard = 0;
};

struct ExecOptions {
  std::string exec_id;  ///< Unique in the sandbox; 1..64 of [A-Za-z0-9._-]. "main" is the main command.
  std::vector<std::string> argv;  ///< argv[0] is looked up in PATH of the resulting environment. Bytes.
  std::vector<std::string> env;   ///< "KEY=value", over the image's. Bytes.
  std::string cwd;                ///< Empty: the image's.
  std::string user;               ///< "name", "uid", "name:group", "uid:gid"; empty: the image's.
  bool tty = false;
  std::uint16_t rows = 24, columns = 80;
  bool stdin_open = false;       ///< false: /dev/null.
  bool keep_on_reset = false;    ///< The process lives on when its stream is reset.
  std::uint64_t timeout_ms = 0;  ///< 0: none. Then the whole tree is killed.
  std::vector<ResourceLimit> limits;
};

[[nodiscard]] bool valid_exec_id(std::string_view id);

struct FileOptions {
  std::string path, target;  ///< target: new name (rename), link text (symlink).
  std::uint64_t offset = 0, length = 0;
  std::uint32_t mode = 0;
  std::int64_t uid = -1, gid = -1;  ///< -1: leave.
  bool no_follow = false, recursive = false, parents = false, append = false, exclusive = false,
       ranged = false;
  std::vector<std::string> ignore;  ///< kWalk: gitignore-style patterns.
  bool contents = false;            ///< kWalk: stream contents of regular files up to `length` bytes each.
  std::uint16_t port = 0;           ///< kTunnel.
  std::string user;                 ///< Acts with this user's rights (as ExecOptions::user); empty: root.
};

struct OpenRequest {
  OpenKind kind = OpenKind::kExec;
  ExecOptions exec;  ///< kExec; kAttach uses exec_id only.
  FileOptions file;  ///< Everything else.
  /// May exceed one frame (arguments and environment of 1 MiB and more), so it is sent as one kOpen frame
  /// holding the first part and kData frames on Channel::kStdin before credits apply: see docs/protocol.md,
  /// "Large opens".
  [[nodiscard]] std::string encode() const;
  static Result<OpenRequest> decode(ByteView bytes);
};
/// Longest encoded OpenRequest: 4 MiB.
inline constexpr std::size_t kMaxOpenRequest = std::size_t{4} * 1024 * 1024;

/// Appends the frames of one open: kOpen with u32 total length and the first part, then kData on kStdin with
/// the rest. These kData frames take no credit. Precondition: encoded.size() <= kMaxOpenRequest.
void append_open_frames(std::string& out, std::uint32_t stream, std::string_view encoded);

/// Puts an open together again.
class OpenAssembler {
 public:
  /// From the payload of the kOpen frame.
  static Result<OpenAssembler> begin(ByteView payload);
  /// The payload of the next kData frame on kStdin; precondition: !complete(). More than is missing is an
  /// error.
  Status add(ByteView payload);
  [[nodiscard]] bool complete() const { return bytes_.size() == total_; }
  [[nodiscard]] std::size_t total() const { return total_; }
  /// Precondition: complete().
  Result<OpenRequest> decode() const { return OpenRequest::decode(as_bytes(bytes_)); }

 private:
  std::size_t total_ = 0;
  std::string bytes_;
};

struct OpenedReply {
  std::int32_t pid = 0;  ///< As user work sees it; 0 for file operations.
  [[nodiscard]] std::string encode() const;
  static Result<OpenedReply> decode(ByteView bytes);
};

/// How a stream's work ended. For an exec the facts are separate; for everything else `error` or `result`.
struct ExitFacts {
  std::int32_t exit_code = -1;  ///< -1: did not exit by itself.
  std::int32_t signal = 0;      ///< 0: none.
  bool timed_out = false;
  bool oom_killed = false;
  bool truncated = false;  ///< Output was lost (ring overflow while nobody was attached).
  std::uint64_t wall_ns = 0, cpu_ns = 0;
  std::optional<Error> error;  ///< Could not start (sys_errno says why; exit_code then is 126 or 127), or a
                               ///< file operation failed.
  std::string result;          ///< Encoded StatResult (kStat, kReadFile, kWriteFile), else empty.
  [[nodiscard]] std::string encode() const;
  static Result<ExitFacts> decode(ByteView bytes);
};

/// Result of kStat, kReadFile and kWriteFile; record of kList and kWalk.
struct StatResult {
  std::string name;  ///< kList and kWalk: path relative to the start.
  char type = 'f';   ///< f d l c b p s, as in find -type.
  std::uint64_t size = 0, allocated = 0;
  std::uint32_t mode = 0, uid = 0, gid = 0;
  std::int64_t mtime_ns = 0;
  std::string link_target;
  std::uint64_t inode = 0;
  void append_to(ByteWriter& writer) const;
  static StatResult read(ByteReader& reader);
};

// kList, kWalk and kWatch write records to stdout: u32 length of the rest, u8 RecordKind, body.
enum class RecordKind : std::uint8_t {
  kEntry = 1,       ///< StatResult. kList and kWalk.
  kContent = 2,     ///< Next bytes of the entry before (kWalk with contents); never empty.
  kContentEnd = 3,  ///< u8 1 = the file is longer than what was sent. After the last kContent of an entry,
                    ///< also of an empty file.
  kProblem = 4,     ///< text name, i32 errno: could not be read; the walk goes on.
  kChange = 5,      ///< WatchEvent.
};
/// Longest record: a content chunk and its head.
inline constexpr std::size_t kMaxRecord = 65536;

struct WatchEvent {
  /// c created, m modified (closed after writing), d deleted, f moved from here, t moved to here, a
  /// attributes changed, o events were lost: look at the whole tree again.
  char kind = 'o';
  bool directory = false;
  std::uint32_t cookie = 0;  ///< Same in the `f` and the `t` of one rename.
  std::string name;          ///< Relative to the watched path; empty: the path itself.
  void append_to(ByteWriter& writer) const;
  static WatchEvent read(ByteReader& reader);
};

void append_record(std::string& out, RecordKind kind, std::string_view body);

/// Cuts a byte stream into records.
class RecordParser {
 public:
  /// Calls `on_record` for each complete record; stops at the first error (length, kind, or an error of
  /// `on_record`).
  Status feed(ByteView bytes, const std::function<Status(RecordKind, ByteView)>& on_record);
  /// True between records.
  [[nodiscard]] bool idle() const { return partial_.empty(); }

 private:
  std::string partial_;
};

}  // namespace drupe
