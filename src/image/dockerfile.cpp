#include "image/dockerfile.h"

#include <algorithm>
#include <array>
#include <optional>

#include "image/dockerfile_words.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr std::size_t kMostInstructions = 500;
constexpr std::size_t kMostHeredocs = 16;

std::unexpected<Error> at_line(int line, const std::string& what) {
  return fail(ErrorCode::kInvalidArgument, "line " + std::to_string(line) + ": " + what);
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return out;
}

/// The lines of the text, without their ends.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  [[nodiscard]] bool more() const { return !rest_.empty(); }
  [[nodiscard]] int number() const { return number_; }
  std::string_view next() {
    const auto end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number_;
    return line;
  }

 private:
  std::string_view rest_;
  int number_ = 0;
};

bool is_comment(std::string_view line) {
  return trim_blanks(line).starts_with('#');
}

/// "# escape=`" before anything else; the other directives change nothing here.
char escape_of(std::string_view text) {
  Lines lines(text);
  while (lines.more()) {
    std::string_view line = trim_blanks(lines.next());
    if (!line.starts_with('#')) break;
    line = trim_blanks(line.substr(1));
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) break;
    if (to_lower(trim_blanks(line.substr(0, equals))) == "escape")
      return trim_blanks(line.substr(equals + 1)) == "`" ? '`' : '\\';
  }
  return '\\';
}

struct HeredocStart {
  std::string name;
  bool expand = true, strip_tabs = false;
};

/// "<<EOF", "<<-'EOF'", "3<<EOF"
std::optional<HeredocStart> heredoc_of(std::string_view word) {
  while (!word.empty() && is_digit(word.front())) word.remove_prefix(1);
  if (!word.starts_with("<<")) return std::nullopt;
  word.remove_prefix(2);
  HeredocStart start;
  if (word.starts_with('-')) {
    start.strip_tabs = true;
    word.remove_prefix(1);
  }
  if (word.size() > 2 && (word.front() == '"' || word.front() == '\'') && word.back() == word.front()) {
    start.expand = false;
    word = word.substr(1, word.size() - 2);
  }
  const bool plain =
      std::ranges::all_of(word, [](char c) { return is_alnum(c) || c == '_' || c == '-' || c == '.'; });
  if (word.empty() || !plain) return std::nullopt;
  start.name = std::string(word);
  return start;
}

Status read_heredocs(Lines& lines, char escape, Instruction& instruction) {
  const auto words = split_words(instruction.text, escape);
  if (!words) return {};  // the shell's to complain about
  for (const std::string& word : *words) {
    const auto start = heredoc_of(word);
    if (!start) continue;
    if (instruction.heredocs.size() == kMostHeredocs) return at_line(instruction.line, "too many heredocs");
    Heredoc heredoc{start->name, start->expand, {}};
    bool ended = false;
    while (!ended && lines.more()) {
      std::string_view line = lines.next();
      while (start->strip_tabs && line.starts_with('\t')) line.remove_prefix(1);
      ended = line == start->name;
      if (!ended) heredoc.body.append(line).append("\n");
    }
    if (!ended) return at_line(instruction.line, "the heredoc " + start->name + " does not end");
    instruction.heredocs.push_back(std::move(heredoc));
  }
  return {};
}

/// The logical line that begins with `line`.
std::string join_continued(Lines& lines, std::string_view line, char escape) {
  std::string out;
  while (true) {
    std::string_view part = line;
    while (!part.empty() && (part.back() == ' ' || part.back() == '\t')) part.remove_suffix(1);
    if (!part.ends_with(escape) || !lines.more()) {
      if (part.ends_with(escape)) line = part.substr(0, part.size() - 1);
      return out.append(line);
    }
    out.append(part.substr(0, part.size() - 1));
    do {
      line = lines.next();
    } while (lines.more() && (is_comment(line) || trim_blanks(line).empty()));
    if (is_comment(line)) return out;
  }
}

Status check_supported(const Instruction& instruction) {
  constexpr std::array kKnown{"FROM",  "RUN",        "ENV",        "ARG",         "WORKDIR", "USER",
                              "COPY",  "ADD",        "CMD",        "ENTRYPOINT",  "LABEL",   "EXPOSE",
                              "SHELL", "STOPSIGNAL", "MAINTAINER", "HEALTHCHECK", "VOLUME",  "ONBUILD"};
  const std::string& keyword = instruction.keyword;
  if (std::ranges::find(kKnown, keyword) == kKnown.end())
    return at_line(instruction.line, shown(keyword) + " is no instruction");
  if (keyword == "VOLUME" || keyword == "ONBUILD" ||
      (keyword == "HEALTHCHECK" && upper(instruction.text) != "NONE"))
    return at_line(instruction.line, keyword + " is not supported");
  if (instruction.text.empty()) return at_line(instruction.line, keyword + " says nothing");
  if ((keyword == "COPY" || keyword == "ADD") && instruction.heredocs.empty())
    return at_line(instruction.line,
                   keyword +
                       " is not supported: a build has no context to copy from; fetch with RUN, or write "
                       "the content into a heredoc");
  if (keyword == "RUN" && instruction.text.starts_with("--"))
    return at_line(instruction.line, "options of RUN are not supported");
  return {};
}

/// The base image's name, with variables of ARGs before it.
Result<std::string> base_of(const Dockerfile& file, const Instruction& from) {
  Variables variables;
  for (const Instruction& arg : file.before) {
    DRUPE_ASSIGN(const auto words, split_words(arg.text, file.escape));
    for (const std::string& word : words) {
      const auto equals = word.find('=');
      if (!is_variable_name(word.substr(0, equals))) return at_line(arg.line, "ARG has no name");
      if (equals == std::string::npos) continue;
      auto value = expand_word(std::string_view(word).substr(equals + 1), variables, file.escape);
      if (!value) return at_line(arg.line, value.error().message);
      variables[word.substr(0, equals)] = *std::move(value);
    }
  }
  auto words = split_words(from.text, file.escape);
  if (!words) return at_line(from.line, words.error().message);
  for (std::string& word : *words) {
    auto value = expand_word(word, variables, file.escape);
    if (!value) return at_line(from.line, value.error().message);
    word = *std::move(value);
  }
  if (!words->empty() && words->front().starts_with("--")) {
    if (words->front() != "--platform=linux/amd64")
      return at_line(from.line, "FROM is supported for linux/amd64 only");
    words->erase(words->begin());
  }
  const bool named = words->size() == 3 && upper((*words)[1]) == "AS";
  if ((words->size() != 1 && !named) || words->front().empty())
    return at_line(from.line, "FROM needs the name of one image");
  if (words->front() == "scratch") return at_line(from.line, "FROM scratch is not supported");
  return std::move(words->front());
}

}  // namespace

Result<Dockerfile> parse_dockerfile(std::string_view text) {
  if (text.size() > kMostDockerfile)
    return fail(ErrorCode::kInvalidArgument, "the Dockerfile is longer than 64 KiB");
  if (text.find('\0') != std::string_view::npos)
    return fail(ErrorCode::kInvalidArgument, "the Dockerfile has a zero byte");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Dockerfile file;
  file.escape = escape_of(text);
  Lines lines(text);
  while (lines.more()) {
    const std::string_view line = lines.next();
    if (is_comment(line) || trim_blanks(line).empty()) continue;
    Instruction instruction;
    instruction.line = lines.number();
    const std::string whole = join_continued(lines, line, file.escape);
    const std::string_view trimmed = trim_blanks(whole);
    const auto blank = std::min(trimmed.find_first_of(" \t"), trimmed.size());
    instruction.keyword = upper(trimmed.substr(0, blank));
    instruction.text = std::string(trim_blanks(trimmed.substr(blank)));
    if (instruction.keyword == "RUN" || instruction.keyword == "COPY" || instruction.keyword == "ADD")
      DRUPE_TRY(read_heredocs(lines, file.escape, instruction));
    DRUPE_TRY(check_supported(instruction));
    if (file.after.size() + file.before.size() == kMostInstructions)
      return at_line(instruction.line, "there are more than 500 instructions");
    if (instruction.keyword == "FROM") {
      if (!file.from.empty())
        return at_line(instruction.line,
                       "there is a second FROM; builds of several stages are not supported");
      DRUPE_ASSIGN(file.from, base_of(file, instruction));
    } else if (file.from.empty()) {
      if (instruction.keyword != "ARG")
        return at_line(instruction.line, instruction.keyword + " stands before FROM");
      file.before.push_back(std::move(instruction));
    } else {
      file.after.push_back(std::move(instruction));
    }
  }
  if (file.from.empty()) return fail(ErrorCode::kInvalidArgument, "the Dockerfile has no FROM");
  return file;
}

}  // namespace drupe
