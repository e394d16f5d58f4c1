// The one file that sees Boost.Beast: a quarter of a minute to compile.
#include "api/http/parser.h"

#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/rfc7230.hpp>

namespace drupe::api {

namespace http = boost::beast::http;

struct RequestParser::State {
  http::request_parser<http::buffer_body> parser;
  bool body_done = false;
};

RequestParser::RequestParser() : state_(std::make_unique<State>()) {
  state_->parser.header_limit(static_cast<std::uint32_t>(kMaxHeadBytes));
  state_->parser.body_limit(boost::none);  // each route has a bound of its own
}
RequestParser::~RequestParser() = default;
RequestParser::RequestParser(RequestParser&&) noexcept = default;
RequestParser& RequestParser::operator=(RequestParser&&) noexcept = default;

std::size_t head_length(std::string_view bytes) {
  // Empty lines before a request line are skipped by servers (RFC 9112, 2.2).
  std::size_t start = 0;
  while (bytes.substr(start).starts_with("\r\n")) start += 2;
  const auto end = bytes.find("\r\n\r\n", start);
  if (end != std::string_view::npos) return end + 4;
  // Line feeds alone end no head of ours: the parser refuses what is taken for one here.
  const auto bare = bytes.find("\n\n", start);
  return bare == std::string_view::npos ? 0 : bare + 2;
}

namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace

Result<RequestHead> RequestParser::head(std::string_view bytes) {
  while (bytes.starts_with("\r\n")) bytes.remove_prefix(2);
  auto& parser = state_->parser;
  boost::system::error_code error;
  const std::size_t used = parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
  if (error == http::error::need_more) error = {};
  if (error) return fail(ErrorCode::kInvalidArgument, "The request is not HTTP/1.1: " + error.message());
  if (!parser.is_header_done() || used != bytes.size())
    return fail(ErrorCode::kInvalidArgument, "The request's head is malformed");
  RequestHead head;
  const auto& message = parser.get();
  if (message.version() != 10 && message.version() != 11)
    return fail(ErrorCode::kInvalidArgument, "The request is not HTTP/1.1");
  head.method = std::string(message.method_string());
  head.target = std::string(message.target());
  for (const auto& field : message) {
    if (head.headers.size() == kMaxHeaders)
      return fail(ErrorCode::kLimit, "The request has more than 100 headers");
    const auto name = field.name_string();
    const auto value = field.value();
    head.headers.push_back({lower({name.data(), name.size()}), {value.data(), value.size()}});
  }
  head.chunked = parser.chunked();
  if (const auto length = parser.content_length()) head.content_length = *length;
  // Without both a request has no body, whatever its method (RFC 9112, 6.3).
  if (!head.chunked && !head.content_length && head.header("transfer-encoding"))
    return fail(ErrorCode::kInvalidArgument, "Of transfer encodings only 'chunked' is understood");
  if (head.chunked && head.header("content-length"))
    return fail(ErrorCode::kInvalidArgument, "The request has both a length and chunks");
  head.keep_alive = parser.keep_alive();
  head.expect_continue = message.version() == 11 && head.header_has("expect", "100-continue");
  state_->body_done = !head.has_body();
  return head;
}

Result<RequestParser::Progress> RequestParser::body(std::string_view in, std::span<char> out) {
  Progress progress;
  auto& parser = state_->parser;
  parser.eager(true);
  auto& body = parser.get().body();
  body.data = out.data();
  body.size = out.size();
  body.more = true;
  while (!state_->body_done && progress.consumed < in.size()) {
    boost::system::error_code error;
    const std::string_view rest = in.substr(progress.consumed);
    progress.consumed += parser.put(boost::asio::const_buffer(rest.data(), rest.size()), error);
    state_->body_done = parser.is_done();
    if (error == http::error::need_buffer || error == http::error::need_more) break;
    if (error)
      return fail(ErrorCode::kInvalidArgument, "The request's body is malformed: " + error.message());
  }
  progress.produced = out.size() - body.size;
  progress.done = state_->body_done;
  return progress;
}

}  // namespace drupe::api
