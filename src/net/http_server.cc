#include "net/http_server.h"

#include <cerrno>

#include "base/ascii.h"
#include "net/http_connection.h"

namespace pointsman {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (iequals(key, name)) return value;
  }
  return {};
}

// --- HttpResponse ---

HttpResponse::State::~State() {
  if (connection == nullptr) return;
  on_gone = nullptr;
  connection->drop_response();
}

void HttpResponse::send(int status, std::string_view content_type, std::string_view body,
                        const HttpHeaders& headers) const {
  if (state_ && state_->connection) state_->connection->send(status, content_type, body, headers);
}

void HttpResponse::begin(int status, std::string_view content_type,
                         const HttpHeaders& headers) const {
  if (state_ && state_->connection) state_->connection->begin(status, content_type, headers);
}

bool HttpResponse::write(std::string_view bytes) const {
  return state_ && state_->connection ? state_->connection->write(bytes) : true;
}

void HttpResponse::end() const {
  if (state_ && state_->connection) state_->connection->end();
}

void HttpResponse::on_gone(std::function<void()> callback) const {
  if (state_ && state_->connection) state_->on_gone = std::move(callback);
}

void HttpResponse::on_drained(std::function<void()> callback) const {
  if (state_ && state_->connection) state_->on_drained = std::move(callback);
}

bool HttpResponse::gone() const {
  return !state_ || state_->connection == nullptr;
}

std::size_t HttpResponse::unsent() const {
  return state_ && state_->connection ? state_->connection->unsent() : 0;
}

void HttpResponse::reset() const {
  if (!state_ || !state_->connection) return;
  state_->on_gone = nullptr;
  state_->connection->reset();
}

void HttpResponse::close() const {
  if (!state_ || !state_->connection) return;
  state_->on_gone = nullptr;
  state_->connection->close_after_write();
}

bool HttpResponse::write_raw(std::string_view bytes) const {
  return state_ && state_->connection ? state_->connection->write_raw(bytes) : true;
}

// --- HttpServer ---

HttpServer::HttpServer(Reactor& reactor, Options options, Handler handler)
    : reactor_(reactor),
      options_(std::move(options)),
      handler_(std::move(handler)),
      acceptor_(reactor.io()),
      accept_again_([this] { accept(); }) {}

HttpServer::~HttpServer() {
  *alive_ = false;
  while (!connections_.empty()) {
    const std::shared_ptr<HttpConnection> connection = *connections_.begin();
    connection->abandon();
  }
}

Result<void> HttpServer::listen(std::string_view address, std::uint16_t port) {
  std::error_code error;
  const auto ip = asio::ip::make_address(std::string(address), error);
  const auto failed = [&](std::string_view what) {
    return Error{ErrorKind::kInternal, std::string(what) + " " + std::string(address) + ":" +
                                           std::to_string(port) + ": " + error.message()};
  };
  if (error) return failed("not an IP address:");
  const asio::ip::tcp::endpoint endpoint(ip, port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(4096, error);
  if (!error) acceptor_.non_blocking(true, error);
  if (error) {
    std::error_code ignored;
    acceptor_.close(ignored);
    return failed("cannot listen on");
  }
  port_ = acceptor_.local_endpoint(error).port();
  accept();
  return {};
}

void HttpServer::accept() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_accept([this, alive = alive_](std::error_code error,
                                                asio::ip::tcp::socket socket) {
    if (!*alive || error == asio::error::operation_aborted) return;
    if (error == asio::error::no_descriptors || error == std::errc::too_many_files_open_in_system ||
        error == asio::error::no_buffer_space || error == asio::error::no_memory) {
      // Accepting at once again would spin until a descriptor is free.
      reactor_.arm(accept_again_, std::chrono::milliseconds(100));
      return;
    }
    if (!error &&
        (options_.max_connections == 0 || connections_.size() < options_.max_connections)) {
      std::make_shared<HttpConnection>(*this, std::move(socket))->start();
    }
    accept();
  });
}

void HttpServer::stop_listening() {
  std::error_code ignored;
  acceptor_.close(ignored);
  accept_again_.cancel();
  const std::vector<std::shared_ptr<HttpConnection>> open(connections_.begin(), connections_.end());
  for (const std::shared_ptr<HttpConnection>& connection : open) connection->close_if_idle();
}

void HttpServer::cut_all() {
  std::error_code ignored;
  acceptor_.close(ignored);
  accept_again_.cancel();
  while (!connections_.empty()) (*connections_.begin())->reset();
}

}  // namespace pointsman
