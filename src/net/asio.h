#pragma once

// The one place that includes standalone Asio (1.22). Compiled once, in net/asio.cc, instead of in
// every file that uses it.

#ifndef ASIO_STANDALONE
#define ASIO_STANDALONE 1
#endif
#ifndef ASIO_SEPARATE_COMPILATION
#define ASIO_SEPARATE_COMPILATION 1
#endif
#ifndef ASIO_NO_DEPRECATED
#define ASIO_NO_DEPRECATED 1
#endif

// Left to itself, Asio uses aligned_alloc only in those files that have included a standard header
// before it, and memory from one file's allocator would go to another's.
#define ASIO_DISABLE_STD_ALIGNED_ALLOC 1

#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/address.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
