// drupe pull, load, images, rmi, tag, image, warm.
#include <algorithm>
#include <ctime>

#include <unistd.h>

#include "cli/cancel_scope.h"
#include "cli/command_group.h"
#include "cli/commands.h"
#include "cli/json_writer.h"
#include "cli/table.h"
#include "cli/values.h"
#include "image/reference.h"
#include "image/store.h"

namespace drupe::cli {
namespace {

std::string short_id(const std::string& id) {
  return id.substr(0, 12);
}

Result<ImageStore*> store_of(Session& session) {
  DRUPE_ASSIGN(Engine * engine, session.engine());
  return engine->images();
}

OnProgress shown_by(Session& session) {
  return [&session](const Progress& progress) {
    session.progress().report(progress.what, progress.done, progress.total);
  };
}

/// 130 after Ctrl-C, else 1.
int failed(Session& session, const Error& error) {
  const int cancelled = CancelScope::status();
  return session.fail_with(error, cancelled != 0 ? cancelled : 1);
}

void write_image(JsonWriter& json, const Image& image) {
  const ImageConfig& config = image.config;
  json.begin_object()
      .field("id", std::string_view(image.id))
      .field("names", image.names)
      .field("created", std::string_view(format_time(image.created * 1'000'000'000)))
      .field("size_bytes", image.disk_bytes)
      .field("virtual_bytes", image.virtual_bytes)
      .field("digest",
             std::string_view(image.manifest_digest.empty() ? "" : "sha256:" + image.manifest_digest));
  json.key("config")
      .begin_object()
      .field("Env", config.env)
      .field("Entrypoint", config.entrypoint)
      .field("Cmd", config.cmd)
      .field("WorkingDir", std::string_view(config.working_dir))
      .field("User", std::string_view(config.user))
      .field("StopSignal", std::string_view(config.stop_signal))
      .field("Architecture", std::string_view(config.architecture))
      .field("Os", std::string_view(config.os));
  json.key("Labels").begin_object();
  for (const auto& [key, value] : config.labels) json.field(key, std::string_view(value));
  json.end_object().end_object();
  json.field("diff_ids", image.diff_ids).end_object();
}

int print_images(Session& session, const std::vector<Image>& images) {
  JsonWriter json;
  json.begin_array();
  for (const Image& image : images) write_image(json, image);
  json.end_array();
  return session.print(json.str() + "\n");
}

std::string label_of(const Image& image) {
  return image.names.empty() ? short_id(image.id) : image.names.front();
}

int build_debian(Session& session, const Arguments& arguments) {
  FlagSet set("image build-debian NAME",
              "Builds an image from Debian packages: devbox:1 (the default one, for running code), lfx:1 "
              "(with Langflow's lfx), debian:12 or debian:13.");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 1)
    return session.usage_error(set,
                               "The name of one recipe is needed: devbox:1, lfx:1, debian:12 or debian:13.");
  auto store = store_of(session);
  if (!store) return session.fail_with(store.error(), 1);
  const CancelScope scope;
  auto image = (*store)->build_debian(words->front(), {shown_by(session), CancelScope::flag()});
  if (!image) return failed(session, image.error());
  return session.print(label_of(*image) + "\n");
}

int inspect(Session& session, const Arguments& arguments) {
  FlagSet set("image inspect IMAGE...", "Prints everything about images as a list of JSON objects.");
  set.flag("--json", session.json, "");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "An image is needed.");
  auto store = store_of(session);
  if (!store) return session.fail_with(store.error(), 1);
  std::vector<Image> images;
  int status = 0;
  for (const auto& word : *words) {
    auto image = (*store)->find(word);
    if (image) {
      images.push_back(*std::move(image));
    } else {
      status = session.fail_with(image.error(), 1);
    }
  }
  const int printed = print_images(session, images);
  return status != 0 ? status : printed;
}

}  // namespace

int run_command_pull(Session& session, const Arguments& arguments) {
  PullOptions options;
  FlagSet set("pull [FLAGS] IMAGE...",
              "Fetches images from their registries: python:3.12-slim, host:port/name:tag, name@sha256:...");
  set.flag("--insecure", options.insecure, "Speak plain http to the registry")
      .text("--platform", "OS/ARCH", options.platform, "Of a multi-platform image; default linux/amd64")
      .flag("--json", session.json, "Print a list of objects");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "An image is needed.");
  auto store = store_of(session);
  if (!store) return session.fail_with(store.error(), 1);
  const CancelScope scope;
  options.force = true;
  options.on_progress = shown_by(session);
  options.cancel = CancelScope::flag();
  std::vector<Image> images;
  std::string text;
  for (const auto& word : *words) {
    auto image = (*store)->pull(word, options);
    // Most sentences name the image themselves.
    if (!image && image.error().code != ErrorCode::kCancelled && word.size() <= kReferenceLimit &&
        !image.error().message.contains(word))
      return failed(session, Error(image.error()).in(word));
    if (!image) return failed(session, image.error());
    text += label_of(*image) + "\n";
    images.push_back(*std::move(image));
  }
  return session.json ? print_images(session, images) : session.print(text);
}

int run_command_load(Session& session, const Arguments& arguments) {
  LoadOptions options;
  std::string input;
  FlagSet set("load [FLAGS] [FILE]",
              "Reads images from an archive made by docker save or in OCI layout (or such a folder); from "
              "stdin without a file.");
  set.text("-i, --input", "FILE", input, "The archive")
      .list("--name", "NAME", options.names, "Further name for the image")
      .flag("--json", session.json, "Print a list of objects");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() > 1 || (!words->empty() && !input.empty()))
    return session.usage_error(set, "Only one archive can be read.");
  if (!words->empty()) input = words->front();
  if (input.empty() && ::isatty(STDIN_FILENO) == 1)
    return session.usage_error(set, "An archive is needed: name a file, or redirect stdin from one.");
  auto store = store_of(session);
  if (!store) return session.fail_with(store.error(), 1);
  const CancelScope scope;
  options.on_progress = shown_by(session);
  options.cancel = CancelScope::flag();
  auto images =
      input.empty() || input == "-" ? (*store)->load(STDIN_FILENO, options) : (*store)->load(input, options);
  if (!images) return failed(session, images.error());
  if (session.json) return print_images(session, *images);
  std::string text;
  for (const Image& image : *images) text += label_of(image) + "\n";
  return session.print(text);
}

int run_command_images(Session& session, const Arguments& arguments) {
  FlagSet set("images [FLAGS]", "Lists images.");
  bool only_ids = false;
  set.flag("--json", session.json, "Print a list of objects").flag("--ids", only_ids, "Only ids");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (!words->empty()) return session.usage_error(set, "images takes no words.");
  auto store = store_of(session);
  if (!store) return session.fail_with(store.error(), 1);
  auto images = (*store)->list();
  if (!images) return session.fail_with(images.error(), 1);
  if (session.json) return print_images(session, *images);
  if (only_ids || session.quiet) {
    std::string text;
    for (const Image& image : *images) text += image.id + "\n";
    return session.print(text);
  }
  std::vector<std::vector<std::string>> rows;
  const auto now = std::time(nullptr);
  for (const Image& image : *images) {
    std::vector<std::string> names = image.names;
    if (names.empty()) names.emplace_back("-");
    for (const auto& name : names)
      rows.push_back({name, short_id(image.id), format_age((now - image.created) * 1'000'000'000) + " ago",
                      format_size(image.disk_bytes)});
  }
  return session.print(format_table({"NAME", "ID", "CREATED", "SIZE"}, rows));
}

int run_command_rmi(Session& session, const Arguments& arguments) {
  bool force = false;
  FlagSet set("rmi [FLAGS] IMAGE...",
              "Removes names of images, and an image with its last name. Sandboxes made from it go on.");
  set.flag("-f, --force", force, "By id: with all names");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "An image is needed.");
  auto store = store_of(session);
  if (!store) return session.fail_with(store.error(), 1);
  int status = 0;
  for (const auto& word : *words) {
    auto removed = (*store)->remove(word, force);
    if (!removed) {
      status = session.fail_with(removed.error(), 1);
      continue;
    }
    std::string text;
    for (const auto& name : removed->names) text += "Untagged: " + name + "\n";
    if (!removed->deleted_id.empty()) text += "Deleted: " + removed->deleted_id + "\n";
    if (session.print(text) != 0) return 1;
  }
  return status;
}

int run_command_tag(Session& session, const Arguments& arguments) {
  FlagSet set("tag IMAGE NAME", "Gives an image another name.");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 2) return session.usage_error(set, "An image and its new name are needed.");
  auto store = store_of(session);
  if (!store) return session.fail_with(store.error(), 1);
  auto tagged = (*store)->tag(words->front(), words->back());
  return tagged ? 0 : session.fail_with(tagged.error(), 1);
}

int run_command_image(Session& session, const Arguments& arguments) {
  constexpr GroupCommand kCommands[] = {{"inspect", inspect},       {"build-debian", build_debian},
                                        {"ls", run_command_images}, {"pull", run_command_pull},
                                        {"load", run_command_load}, {"rm", run_command_rmi},
                                        {"tag", run_command_tag},   {"warm", run_command_warm}};
  const FlagSet set("image inspect|build-debian|ls|pull|load|rm|tag|warm ...", "Commands about images.");
  return run_group(session, set, "image", kCommands, arguments);
}

int run_command_warm(Session& session, const Arguments& arguments) {
  std::uint64_t memory_mib = SandboxOptions{}.memory_mib;
  double cpus = SandboxOptions{}.cpus;
  FlagSet set(
      "warm [FLAGS] IMAGE...",
      "Boots each image once and keeps its memory, so that later sandboxes of this shape need no boot.");
  set.value(
         "-m, --memory", "SIZE",
         [&memory_mib](std::string_view text) -> Status {
           DRUPE_ASSIGN(memory_mib, parse_memory_mib(text));
           return {};
         },
         "Memory of the sandboxes to come; default 512m")
      .value(
          "--cpus", "NUMBER",
          [&cpus](std::string_view text) -> Status {
            DRUPE_ASSIGN(cpus, parse_cpus(text));
            return {};
          },
          "Their processors; default 1");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "An image is needed.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  for (const auto& word : *words) {
    auto done = (*engine)->warm(word, memory_mib, cpus);
    if (!done) return session.fail_with(done.error(), 1);
    session.print(word + "\n");
  }
  return 0;
}

}  // namespace drupe::cli
