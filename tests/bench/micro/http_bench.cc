#include <string>

#include <benchmark/benchmark.h>

#include "http/chunk_scanner.h"
#include "http/head_parser.h"
#include "http/head_writer.h"
#include "http/path.h"
#include "http/sse_scanner.h"

namespace pointsman {
namespace {

// A head of 477 bytes, as the official Python client sends it. Aim: at most 0.5 µs.
std::string request_head() {
  std::string head =
      "POST /v1/chat/completions HTTP/1.1\r\n"
      "Host: 127.0.0.1:8080\r\n"
      "Accept-Encoding: gzip, deflate\r\n"
      "Connection: keep-alive\r\n"
      "Accept: application/json\r\n"
      "Content-Type: application/json\r\n"
      "User-Agent: OpenAI/Python 1.99.0\r\n"
      "X-Stainless-Lang: python\r\n"
      "X-Stainless-Package-Version: 1.99.0\r\n"
      "X-Stainless-OS: Linux\r\n"
      "X-Stainless-Arch: x64\r\n"
      "X-Stainless-Runtime: CPython\r\n"
      "Authorization: Bearer ";
  const std::string tail = "\r\nContent-Length: 1024\r\n\r\n";
  head.append(477 - head.size() - tail.size(), 'k');
  return head + tail;
}

void BM_ParseRequestHead(benchmark::State& state) {
  const std::string head = request_head();
  RequestHeadParser parser;
  for (auto _ : state) {
    parser.reset();
    benchmark::DoNotOptimize(parser.parse(head));
  }
}
BENCHMARK(BM_ParseRequestHead);

void BM_ParseAndRewriteRequestHead(benchmark::State& state) {
  const std::string head = request_head();
  RequestHeadParser parser;
  std::string out;
  std::string scratch;
  for (auto _ : state) {
    parser.reset();
    benchmark::DoNotOptimize(parser.parse(head));
    benchmark::DoNotOptimize(routing_path(parser.head().path(), scratch));
    out.clear();
    write_request_head(parser.head(),
                       {.authority = "10.0.0.1:8000",
                        .path_prefix = "",
                        .request_id = "0123456789abcdef0123456789abcdef",
                        .authorization = ""},
                       out);
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(BM_ParseAndRewriteRequestHead);

void BM_ParseAndRewriteResponseHead(benchmark::State& state) {
  const std::string head =
      "HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 14:24:24 GMT\r\nserver: uvicorn\r\n"
      "content-type: text/event-stream; charset=utf-8\r\nvary: Origin\r\n"
      "connection: close\r\ntransfer-encoding: chunked\r\n\r\n";
  ResponseHeadParser parser;
  std::string out;
  for (auto _ : state) {
    parser.reset();
    benchmark::DoNotOptimize(parser.parse(head));
    out.clear();
    write_response_head(
        parser.head(),
        {.request_id = "0123456789abcdef0123456789abcdef", .body = BodyKind::kChunked, .extra = ""},
        out);
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(BM_ParseAndRewriteResponseHead);

std::string event(int i) {
  return R"(data: {"id":"chatcmpl-8ea013b3d05f12a4","object":"chat.completion.chunk","created":)"
         R"(1795962265,"model":"m","choices":[{"index":0,"delta":{"content":"word )" +
         std::to_string(i) + R"("},"finish_reason":null}]})" + "\n\n";
}

// 64 events, each a chunk.
void BM_ScanChunksAndEvents(benchmark::State& state) {
  std::string stream;
  for (int i = 0; i < 64; ++i) append_chunk(stream, event(i));
  const bool events = state.range(0) != 0;
  for (auto _ : state) {
    ChunkScanner chunks;
    SseScanner scanner;
    std::size_t bytes = 0;
    chunks.feed(stream, [&](std::string_view run) {
      if (events) {
        scanner.feed(run, [&](const SseEvent& e) { bytes += e.data.size(); });
      } else {
        bytes += run.size();
      }
    });
    benchmark::DoNotOptimize(bytes);
  }
  state.SetItemsProcessed(state.iterations() * 64);
}
BENCHMARK(BM_ScanChunksAndEvents)->Arg(0)->Arg(1);

}  // namespace
}  // namespace pointsman
